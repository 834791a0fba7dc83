-- title: top 10 by revenue
-- times-as-fast: 5
SELECT * FROM lineorder ORDER BY lo_revenue DESC, id LIMIT 10
