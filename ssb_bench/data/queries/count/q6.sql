-- title: a narrow range of order prices
-- note: a narrow range of one column near the bottom of its values
-- param: price_from lo_ordtotalprice >= 93565
-- param: price_to lo_ordtotalprice < 93909
SELECT count(*) FROM lineorder WHERE lo_ordtotalprice >= $price_from AND lo_ordtotalprice < $price_to
