-- name: q1.2
-- title: discounts of a month
-- source: Star Schema Benchmark, revision 3, query Q1.2
-- note: two columns of lineorder are restricted, neither is indexed
SELECT sum(lo_extendedprice * lo_discount) AS revenue FROM lineorder, date
WHERE lo_orderdate = d_datekey AND d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6
  AND lo_quantity BETWEEN 26 AND 35
