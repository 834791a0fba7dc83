-- The first parts of TPC-H: manufacturer and category from its brand `Brand#MN`, 40 brands in a category.
-- The colour is the first word of TPC-H's name; SSB's shorter name is the two words after it.
SELECT p_key AS p_partkey,
       split_part(p_name, ' ', 2) || ' ' || split_part(p_name, ' ', 3) AS p_name,
       'MFGR#' || right(p_mfgr, 1) AS p_mfgr,
       'MFGR#' || right(p_brand, 2) AS p_category,
       p_category || lpad(CAST(1 + CAST(md5_number_lower('p_brand1:' || p_key) % 40 AS INTEGER) AS VARCHAR), 2, '0') AS p_brand1,
       split_part(part.p_name, ' ', 1) AS p_color,
       p_type, CAST(p_size AS INTEGER) AS p_size, p_container
FROM (SELECT CAST(p_partkey AS INTEGER) AS p_key, * FROM read_parquet('$tpch/part.parquet')) AS part
WHERE p_key <= $parts ORDER BY p_key
