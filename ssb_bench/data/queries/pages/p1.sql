-- title: a price
-- chosen: SELECT max_by(lo_ordtotalprice, xxhash64(id)) AS price FROM lineorder WHERE lo_linenumber = 5
-- times-as-fast: 12
SELECT * FROM lineorder WHERE lo_ordtotalprice = $price
