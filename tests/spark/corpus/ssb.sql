-- shrinks
SELECT SUM(revenue) FROM {t} WHERE orderkey = 77 AND revenue > 5;
-- shrinks
SELECT c.city, SUM(l.revenue) FROM {t} l JOIN {n}.customer c ON l.custkey = c.custkey WHERE l.orderkey IN (1, 5, 9) GROUP BY c.city;
SELECT c.city, s.city, SUM(l.revenue) FROM {t} l JOIN {n}.customer c ON l.custkey = c.custkey JOIN {n}.supplier s ON l.suppkey = s.suppkey WHERE c.region = 'REGION2' AND s.region = 'REGION1' GROUP BY c.city, s.city;
SELECT p.brand, SUM(l.revenue) FROM {t} l JOIN {n}.part p ON l.partkey = p.partkey WHERE p.category = 'CITY1' AND l.orderdate >= 19950101 GROUP BY p.brand;
-- shrinks
SELECT p.brand, COUNT(*) FROM {n}.part p LEFT JOIN (SELECT * FROM {t} WHERE orderkey BETWEEN 2000 AND 2002) l ON l.partkey = p.partkey GROUP BY p.brand;
-- shrinks
SELECT l.orderkey, c.city FROM {n}.customer c RIGHT JOIN {t} l ON l.custkey = c.custkey WHERE l.orderkey = 1234;
-- shrinks
SELECT COUNT(*) FROM (SELECT * FROM {t} WHERE orderkey = 8) a FULL OUTER JOIN (SELECT * FROM {t} WHERE orderkey = 9) b ON a.custkey = b.custkey;
-- shrinks
SELECT COUNT(*) FROM {n}.customer c LEFT SEMI JOIN (SELECT * FROM {t} WHERE orderkey = 8) l ON l.custkey = c.custkey;
-- shrinks
SELECT COUNT(*) FROM {n}.customer c LEFT ANTI JOIN (SELECT * FROM {t} WHERE orderkey = 8) l ON l.custkey = c.custkey;
-- shrinks
SELECT COUNT(*) FROM {n}.supplier s CROSS JOIN (SELECT * FROM {t} WHERE orderkey = 8) l;
SELECT l.orderkey FROM {t} l, LATERAL (SELECT city FROM {n}.customer c WHERE c.custkey = l.custkey AND c.city = 'CITY3') WHERE l.price > 999000;
-- shrinks
WITH hits AS (SELECT * FROM {t} WHERE orderkey IN (11, 12)) SELECT a.orderkey, b.orderkey FROM hits a JOIN hits b ON a.orderkey < b.orderkey;
-- shrinks
WITH hits AS (SELECT * FROM {t} WHERE orderkey = 5), rest AS (SELECT * FROM {t} WHERE orderkey = 6) SELECT * FROM hits UNION ALL SELECT * FROM rest;
SELECT orderkey FROM {t} WHERE price = (SELECT MAX(price) FROM {t});
-- shrinks
SELECT orderkey FROM {t} WHERE orderkey = (SELECT MIN(partkey) + 7 FROM {t} WHERE orderkey = 900);
-- shrinks
SELECT (SELECT COUNT(*) FROM {t} WHERE orderkey = 3) AS a, (SELECT COUNT(*) FROM {t} WHERE orderkey = 4) AS b;
-- shrinks
SELECT (SELECT MAX(price) FROM {t} WHERE orderkey = 3) AS a, (SELECT SUM(price) FROM {t} WHERE orderkey = 3) AS b;
-- shrinks
SELECT orderkey FROM {t} WHERE orderkey < 300 AND custkey IN (SELECT custkey FROM {t} WHERE orderkey = 7);
-- shrinks
SELECT orderkey FROM {t} WHERE orderkey BETWEEN 2000 AND 2030 AND custkey NOT IN (SELECT custkey FROM {t} WHERE orderkey = 7);
-- shrinks
SELECT COUNT(*) FROM {n}.customer c WHERE EXISTS (SELECT 1 FROM {t} l WHERE l.custkey = c.custkey AND l.orderkey = 10);
-- shrinks
SELECT COUNT(*) FROM {n}.customer c WHERE NOT EXISTS (SELECT 1 FROM {t} l WHERE l.custkey = c.custkey AND l.orderkey = 10);
-- shrinks
SELECT city, (SELECT MAX(l.price) FROM {t} l WHERE l.custkey = c.custkey AND l.orderkey BETWEEN 2000 AND 2002) FROM {n}.customer c;
-- shrinks
SELECT orderkey FROM {t} WHERE orderkey = 1 UNION SELECT orderkey FROM {t} WHERE orderkey = 2;
-- shrinks
SELECT custkey FROM {t} WHERE orderkey < 5 INTERSECT SELECT custkey FROM {t} WHERE orderkey BETWEEN 3 AND 6;
-- shrinks
SELECT custkey FROM {t} WHERE orderkey < 5 EXCEPT SELECT custkey FROM {t} WHERE orderkey = 3;
-- shrinks
SELECT orderkey, ROW_NUMBER() OVER (PARTITION BY custkey ORDER BY orderkey) AS place FROM {t} WHERE orderkey BETWEEN 2000 AND 2002;
SELECT * FROM (SELECT orderkey, RANK() OVER (PARTITION BY custkey ORDER BY price DESC, orderkey) AS place FROM {t}) WHERE place = 1 AND orderkey < 500;
-- shrinks
SELECT orderkey, SUM(price) OVER (ORDER BY orderkey ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM {t} WHERE orderkey IN (4, 5, 6);
-- shrinks
SELECT orderkey FROM {t} WHERE orderkey = 55 LIMIT 1;
-- shrinks
SELECT orderkey FROM {t} WHERE orderkey IN (55, 66, 77) ORDER BY orderkey DESC LIMIT 2 OFFSET 1;
SELECT COUNT(*) FROM (SELECT * FROM {t} LIMIT 100) WHERE orderkey = 5 AND 1 = 0;
-- shrinks
SELECT COUNT(DISTINCT custkey), COUNT(DISTINCT mode) FROM {t} WHERE orderkey BETWEEN 2000 AND 2002;
-- shrinks
SELECT mode, custkey, SUM(price) FROM {t} WHERE orderkey BETWEEN 2000 AND 2002 GROUP BY ROLLUP (mode, custkey);
-- shrinks
SELECT mode, custkey, COUNT(*) FROM {t} WHERE orderkey BETWEEN 2000 AND 2002 GROUP BY GROUPING SETS ((mode), (custkey), ());
SELECT custkey, COUNT(*) FILTER (WHERE orderkey = 5) FROM {t} GROUP BY custkey HAVING COUNT(*) > 10;
-- shrinks
SELECT * FROM (SELECT custkey, mode, price FROM {t} WHERE orderkey BETWEEN 2000 AND 2002) PIVOT (SUM(price) FOR mode IN ('AIR', 'SHIP'));
-- shrinks
SELECT orderkey, word FROM {t} LATERAL VIEW EXPLODE(SPLIT(note.words, '0')) AS word WHERE orderkey = 5;
-- shrinks
SELECT orderkey FROM {t} WHERE note.words = SHA2('42', 256);
-- shrinks
SELECT orderkey FROM {t} WHERE note.words LIKE 'abcd%' AND orderkey BETWEEN 2000 AND 2002;
SELECT COUNT(*) FROM {t} WHERE mode LIKE 'A%';
SELECT COUNT(*) FROM {t} WHERE mode LIKE '%I%' AND mode NOT LIKE 'R%';
SELECT COUNT(*) FROM {t} WHERE UPPER(mode) = 'AIR' AND quantity > 48;
SELECT COUNT(*) FROM {t} WHERE COALESCE(price, 0) = 0;
SELECT COUNT(*) FROM {t} WHERE orderkey % 100 = 7;
-- shrinks
SELECT COUNT(*) FROM {t} WHERE orderkey % 100 = 7 AND orderkey BETWEEN 2000 AND 2002;
SELECT COUNT(*) FROM {t} WHERE mode <=> NULL;
SELECT COUNT(*) FROM {t} WHERE NOT (mode <=> 'AIR') AND quantity = 7;
SELECT COUNT(*) FROM {t} WHERE mode NOT IN ('AIR', 'SHIP');
SELECT COUNT(*) FROM {t} WHERE mode NOT IN ('AIR', NULL);
SELECT COUNT(*) FROM {t} WHERE (price = 5) IS NULL AND custkey = 3;
SELECT COUNT(*) FROM {t} WHERE CASE WHEN price > 10 THEN orderkey = 5 ELSE orderkey = 6 END;
SELECT COUNT(*) FROM {t} WHERE IF(mode = 'AIR', quantity, custkey) = 12;
-- shrinks
SELECT COUNT(*) FROM {t} WHERE orderkey = '31';
-- shrinks
SELECT COUNT(*) FROM {t} WHERE orderkey = 31.0;
SELECT COUNT(*) FROM {t} WHERE orderkey BETWEEN 2990.5D AND 2991.5D;
SELECT COUNT(*) FROM {t} WHERE orderkey < -1;
SELECT COUNT(*) FROM {t} WHERE orderkey = 99999999999999999999;
SELECT COUNT(*) FROM {t} WHERE price = revenue;
SELECT COUNT(*) FROM {t} WHERE price > revenue AND quantity = 50;
-- shrinks
SELECT COUNT(*) FROM {t} WHERE (orderkey = 5 AND mode = 'AIR') OR (orderkey = 6 AND mode IS NOT NULL) OR orderkey = 7;
-- shrinks
SELECT COUNT(*) FROM {t} WHERE orderkey = 5 AND (mode = 'AIR' OR UPPER(mode) = 'SHIP' OR quantity + 1 > 3);
SELECT COUNT(*) FROM {t} WHERE orderkey = 5 OR UPPER(mode) = 'SHIP';
SELECT COUNT(*) FROM {t} TABLESAMPLE (100 PERCENT) WHERE orderkey = 5;
-- shrinks
SELECT * FROM {t} WHERE orderkey = 5 AND RAND() >= 0;
-- shrinks
SELECT MAX(orderkey) FROM {t} WHERE orderdate = 19920101 AND orderkey > 5900;
SELECT COUNT(*), SUM(revenue) FROM {t} WHERE orderdate BETWEEN 19930101 AND 19931231 AND quantity < 25;
SELECT COUNT(*) FROM {t};
SELECT MIN(orderkey), MAX(orderkey) FROM {t};
-- shrinks
SELECT /*+ BROADCAST(c) */ l.orderkey FROM {t} l JOIN {n}.customer c ON l.custkey = c.custkey WHERE l.orderkey = 5;
-- shrinks
SELECT /*+ MERGE(c) */ l.orderkey, c.city FROM {t} l JOIN {n}.customer c ON l.custkey = c.custkey WHERE l.orderkey = 5;
SELECT snapshot_id, operation FROM {t}.snapshots WHERE operation = 'append';
SELECT COUNT(*) FROM {t}.files WHERE record_count > 5 AND file_format = 'PARQUET';
SELECT COUNT(*) FROM {t}.entries WHERE status < 2;
SELECT COUNT(*) FROM {t}.partitions WHERE record_count > 1;
SELECT COUNT(*) FROM {t}.position_deletes WHERE pos = 7;
SELECT COUNT(*) FROM {t}.refs WHERE name = 'first';
SELECT COUNT(*) FROM {t}.all_data_files WHERE content = 0;
-- shrinks
SELECT COUNT(*) FROM {t}.branch_side WHERE orderkey = 3001;
-- shrinks
SELECT COUNT(*) FROM {t} VERSION AS OF 'side' WHERE orderkey = 3002;
-- shrinks
SELECT COUNT(*) FROM {t}.tag_first WHERE orderkey = 3001;
-- shrinks
SELECT a.n, b.n FROM (SELECT COUNT(*) n FROM {t} WHERE orderkey = 3001) a, (SELECT COUNT(*) n FROM {t}.branch_side WHERE orderkey = 3001) b;
-- shrinks
SELECT a.orderkey FROM (SELECT * FROM {t} WHERE orderkey < 3) a LEFT SEMI JOIN (SELECT * FROM {t} WHERE orderkey IN (1, 9)) b USING (orderkey);
-- shrinks
SELECT * FROM (SELECT * FROM {t} WHERE orderkey < 3) a LEFT ANTI JOIN (SELECT * FROM {t} WHERE orderkey IN (1, 9)) b USING (orderkey);
SELECT * FROM (SELECT * FROM {t} WHERE orderkey < 3) a FULL JOIN (SELECT orderkey FROM {t} WHERE orderkey < 2) b USING (orderkey);
-- shrinks
SELECT a.*, b.price FROM (SELECT * FROM {t} WHERE orderkey = 3) a CROSS JOIN (SELECT * FROM {t} WHERE orderkey = 5) b;
-- shrinks
SELECT mode, MAX(price), COUNT(*) FROM {t} WHERE orderkey IN (3, 4, 5) GROUP BY mode;
-- shrinks
SELECT * FROM (SELECT * FROM {t} WHERE orderkey < 6 ORDER BY orderkey LIMIT 3) WHERE orderkey <> 1;
-- shrinks
SELECT orderkey, note.words FROM {t} WHERE note.size = 31;
