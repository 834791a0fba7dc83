-- title: join with one supplier by name
-- note: a filter on the dimension leaves one key
-- param: price lo_ordtotalprice < 2000000
SELECT count(*), sum(lo_revenue) FROM lineorder JOIN supplier ON lo_suppkey = s_suppkey WHERE s_name = 'Supplier#000000007' AND lo_ordtotalprice < $price
