-- title: the price of a scalar subquery
-- note: the subquery finds its few rows by the index as well
-- param: price lo_ordtotalprice = 19665277
SELECT count(*), sum(lo_revenue) FROM lineorder WHERE lo_ordtotalprice = (SELECT max(lo_ordtotalprice) FROM lineorder WHERE lo_ordtotalprice = $price AND lo_revenue > 0)
