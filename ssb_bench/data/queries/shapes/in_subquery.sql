-- title: order prices IN (SELECT ...)
-- note: the keys are those of another query of the same table
-- param: price lo_ordtotalprice = 19665277
SELECT count(*), sum(lo_revenue) FROM lineorder WHERE lo_ordtotalprice IN (SELECT lo_ordtotalprice FROM lineorder WHERE lo_ordtotalprice = $price AND lo_linenumber = 1)
