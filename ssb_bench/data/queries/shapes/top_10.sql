-- title: the ten greatest revenues
-- note: rows of ten places of the table
SELECT lo_orderkey, lo_linenumber, lo_revenue FROM lineorder ORDER BY lo_revenue DESC, lo_orderkey, lo_linenumber LIMIT 10
