-- The first customers of TPC-H, with city, nation and region by name.
-- A city is the first nine characters of the nation, blank-padded, and a digit.
SELECT c_key AS c_custkey, c_name, c_address,
       rpad(n_name, 9, ' ') || CAST(md5_number_lower('c_city:' || c_key) % 10 AS INTEGER) AS c_city,
       n_name AS c_nation, r_name AS c_region, c_phone, c_mktsegment
FROM (SELECT CAST(c_custkey AS INTEGER) AS c_key, * FROM read_parquet('$tpch/customer.parquet'))
JOIN read_parquet('$tpch/nation.parquet') ON c_nationkey = n_nationkey
JOIN read_parquet('$tpch/region.parquet') ON n_regionkey = r_regionkey
WHERE c_key <= $customers ORDER BY c_key
