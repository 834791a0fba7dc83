-- title: wide ranges of both columns
-- note: most rows match, so no row group can be skipped: the index may only cost nothing here
-- param: price_from lo_ordtotalprice >= 93565
-- param: price_to lo_ordtotalprice < 91003562
-- param: revenue_from lo_revenue >= 904300
-- param: revenue_to lo_revenue <= 9904300
SELECT count(*) FROM lineorder
WHERE lo_ordtotalprice >= $price_from AND lo_ordtotalprice < $price_to
  AND lo_revenue >= $revenue_from AND lo_revenue <= $revenue_to
