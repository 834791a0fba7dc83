-- The first suppliers of TPC-H, with city, nation and region by name, as in customer.
SELECT s_key AS s_suppkey, s_name, s_address,
       rpad(n_name, 9, ' ') || CAST(md5_number_lower('s_city:' || s_key) % 10 AS INTEGER) AS s_city,
       n_name AS s_nation, r_name AS s_region, s_phone
FROM (SELECT CAST(s_suppkey AS INTEGER) AS s_key, * FROM read_parquet('$tpch/supplier.parquet'))
JOIN read_parquet('$tpch/nation.parquet') ON s_nationkey = n_nationkey
JOIN read_parquet('$tpch/region.parquet') ON n_regionkey = r_regionkey
WHERE s_key <= $suppliers ORDER BY s_key
