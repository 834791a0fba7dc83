-- title: a falling function of the revenue
-- note: the greatest revenues are those with the least negative
-- param: revenue lo_revenue >= 10430000
SELECT count(*), sum(lo_quantity) FROM lineorder WHERE 5 - lo_revenue / 2 <= 5 - $revenue / 2
