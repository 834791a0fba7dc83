-- title: an order price, plus one
-- note: a sum rises with the price, so one interval of prices is found
-- param: price lo_ordtotalprice = 19665277
SELECT count(*), sum(lo_revenue) FROM lineorder WHERE lo_ordtotalprice + 1 = $price + 1
