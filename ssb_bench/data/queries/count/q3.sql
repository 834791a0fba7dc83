-- title: one order price, high revenue
-- note: an equality and a half-open range near the top of the values
-- param: price lo_ordtotalprice = 19665277
-- param: revenue lo_revenue >= 10304000
SELECT count(*) FROM lineorder WHERE lo_ordtotalprice = $price AND lo_revenue >= $revenue
