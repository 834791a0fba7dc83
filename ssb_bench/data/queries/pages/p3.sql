-- title: a customer, 3 columns
-- chosen: SELECT max_by(lo_custkey, xxhash64(id)) AS customer FROM lineorder WHERE lo_linenumber = 5
-- times-as-fast: 3
SELECT lo_orderkey, lo_quantity, lo_revenue FROM lineorder WHERE lo_custkey = $customer
