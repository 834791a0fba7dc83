-- title: one order price, low revenue
-- note: an equality and a narrow range near the bottom of the values
-- param: price lo_ordtotalprice = 21877827
-- param: revenue_from lo_revenue >= 83800
-- param: revenue_to lo_revenue <= 103800
SELECT count(*) FROM lineorder
WHERE lo_ordtotalprice = $price AND lo_revenue >= $revenue_from AND lo_revenue <= $revenue_to
