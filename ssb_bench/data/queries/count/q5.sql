-- title: high order price, low revenue
-- note: a wide range of one column and a narrow one of the other
-- param: price lo_ordtotalprice > 21877827
-- param: revenue_from lo_revenue >= 83800
-- param: revenue_to lo_revenue <= 93800
SELECT count(*) FROM lineorder
WHERE lo_ordtotalprice > $price AND lo_revenue >= $revenue_from AND lo_revenue <= $revenue_to
