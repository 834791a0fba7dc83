-- title: join with a list of three order prices
-- note: the keys stand in the query, but in another relation
-- param: first lo_ordtotalprice = 19665277
-- param: second lo_ordtotalprice = 20000000
-- param: third lo_ordtotalprice = 21000000
SELECT count(*), sum(lo_revenue) FROM lineorder JOIN (VALUES ($first), ($second), ($third)) AS watch (k) ON lo_ordtotalprice = k
