-- Lines joined with their orders: the 17 columns of lineorder, in key order. Foreign keys are folded by modulo.
-- Cents follow the generator's integer arithmetic: revenue is extended price * (100 - discount) // 100 and
-- supply cost is 6 * unit price // 10, where the unit price is the extended price by the quantity.
SELECT l_orderkey                                                             AS lo_orderkey,
       CAST(l_linenumber AS INTEGER)                                          AS lo_linenumber,
       CAST((o_custkey - 1) % $customers + 1 AS INTEGER)                      AS lo_custkey,
       CAST((l_partkey - 1) % $parts + 1 AS INTEGER)                          AS lo_partkey,
       CAST((l_suppkey - 1) % $suppliers + 1 AS INTEGER)                      AS lo_suppkey,
       CAST(year(o_orderdate) * 10000 + month(o_orderdate) * 100 + day(o_orderdate) AS INTEGER) AS lo_orderdate,
       o_orderpriority                                                        AS lo_orderpriority,
       CAST(o_shippriority AS INTEGER)                                        AS lo_shippriority,
       CAST(quantity AS INTEGER)                                              AS lo_quantity,
       CAST(price AS INTEGER)                                                 AS lo_extendedprice,
       CAST(round(o_totalprice * 100) AS INTEGER)                             AS lo_ordtotalprice,
       CAST(percent AS INTEGER)                                               AS lo_discount,
       CAST(price * (100 - percent) // 100 AS INTEGER)                        AS lo_revenue,
       CAST(6 * (price // quantity) // 10 AS INTEGER)                         AS lo_supplycost,
       CAST(l_tax * 100 AS INTEGER)                                           AS lo_tax,
       CAST(year(l_commitdate) * 10000 + month(l_commitdate) * 100 + day(l_commitdate) AS INTEGER) AS lo_commitdate,
       l_shipmode                                                             AS lo_shipmode
FROM (SELECT *, CAST(l_extendedprice * 100 AS BIGINT) AS price, CAST(l_discount * 100 AS BIGINT) AS percent,
             CAST(l_quantity AS BIGINT) AS quantity
      FROM read_parquet('$lineitem'))
JOIN read_parquet('$orders') ON l_orderkey = o_orderkey
ORDER BY l_orderkey, l_linenumber
