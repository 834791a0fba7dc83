-- title: the ten greatest revenues of a supplier
-- note: the whole WHERE has to hold for the rows that prove the threshold
-- param: supplier lo_suppkey = 7
SELECT lo_orderkey, lo_linenumber, lo_revenue FROM lineorder WHERE lo_suppkey = $supplier ORDER BY lo_revenue DESC, lo_orderkey, lo_linenumber LIMIT 10
