-- title: a customer
-- chosen: SELECT max_by(lo_custkey, xxhash64(id)) AS customer FROM lineorder WHERE lo_linenumber = 5
-- times-as-fast: 5
SELECT * FROM lineorder WHERE lo_custkey = $customer
