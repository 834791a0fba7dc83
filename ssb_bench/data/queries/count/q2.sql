-- title: one order price and one revenue
-- note: two equalities; both values exist, their rows need not meet
-- param: price lo_ordtotalprice = 19665277
-- param: revenue lo_revenue = 2141624
SELECT count(*) FROM lineorder WHERE lo_ordtotalprice = $price AND lo_revenue = $revenue
