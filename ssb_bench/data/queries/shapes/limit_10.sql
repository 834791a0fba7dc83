-- title: ten rows above a price
-- note: any ten rows, counted; one row group is enough, which a predicate cannot say
-- param: price lo_ordtotalprice > 20000000
SELECT count(*) FROM (SELECT * FROM lineorder WHERE lo_ordtotalprice > $price LIMIT 10) AS ten
