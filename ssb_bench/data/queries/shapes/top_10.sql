-- name: top_10
-- title: the ten greatest revenues
-- source: this project
-- note: rows of ten places of the table
-- matters: lo_revenue >= (SELECT min(v) FROM (SELECT lo_revenue AS v FROM lineorder ORDER BY v DESC LIMIT 10) AS t)
SELECT lo_orderkey, lo_linenumber, lo_revenue FROM lineorder ORDER BY lo_revenue DESC, lo_orderkey, lo_linenumber LIMIT 10
