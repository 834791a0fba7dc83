-- title: the suppliers of a remainder, at a price
-- note: evaluated for each supplier key; the row sets of both columns are intersected
-- param: price lo_ordtotalprice < 2000000
SELECT count(*), sum(lo_revenue) FROM lineorder WHERE lo_suppkey % 1000 = 7 AND lo_ordtotalprice < $price
