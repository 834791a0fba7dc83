-- answered without a scan
-- shrinks
SELECT COUNT(*) FROM {t} WHERE i > 100;
-- shrinks
SELECT COUNT(*), COUNT(l), SUM(l), AVG(i), MIN(l), MAX(l), SUM(d), AVG(d), MIN(s), MAX(s), MIN(t), MAX(x) FROM {t} WHERE i BETWEEN 100 AND 3000;
-- shrinks
SELECT s, COUNT(*), SUM(l) FROM {t} WHERE part = 1 GROUP BY s;
-- shrinks
SELECT part, d, AVG(i), MAX(s) FROM {t} GROUP BY part, d HAVING COUNT(*) > 3;
-- shrinks
SELECT YEAR(t), COUNT(*), SUM(d) FROM {t} WHERE x > 3 GROUP BY YEAR(t);
-- shrinks
SELECT i % 10, part + 1, MAX(l) FROM {t} GROUP BY i % 10, part + 1;
-- shrinks
SELECT COUNT(DISTINCT s), COUNT(*), SUM(l) FROM {t} WHERE l > 40;
-- shrinks
SELECT part, SUM(DISTINCT d), AVG(l) FROM {t} GROUP BY part;
-- shrinks
SELECT DISTINCT part FROM {t} WHERE l < 100;
-- shrinks
SELECT x, COUNT(*) FROM {t} GROUP BY x;
-- shrinks
SELECT part, s, COUNT(*), SUM(d), SUM(part), GROUPING(part) FROM {t} GROUP BY CUBE (part, s);
-- shrinks
SELECT YEAR(t), part, MAX(i), GROUPING_ID() FROM {t} GROUP BY GROUPING SETS ((YEAR(t)), (part), ());
-- shrinks
SELECT COUNT(DISTINCT part), COUNT(DISTINCT s) FROM {t};
-- shrinks
SELECT COUNT(*) FILTER (WHERE i > 50), SUM(l) FILTER (WHERE part = 1), AVG(d) FILTER (WHERE part > 7), MAX(s) FROM {t};
-- shrinks
SELECT part, COUNT(IF(i > 50, 1, NULL)), COUNT_IF(s LIKE 'k1%'), MIN(l) FILTER (WHERE part = 2) FROM {t} WHERE i < 2000 GROUP BY ROLLUP (part);
-- shrinks
SELECT YEAR(t), AVG(l), AVG(d) FROM {t} GROUP BY YEAR(t);
-- shrinks
SELECT SUM(l + 1), AVG(i * 2), MIN(l % 7 - 3), COUNT(l + i), MAX(YEAR(t)) FROM {t} WHERE i < 300;
-- shrinks
SELECT part, SUM(d * 2), AVG(d + 1), MAX(UPPER(s)), SUM(1), MIN('a') FROM {t} WHERE l < 3000 GROUP BY part;
-- shrinks
SELECT SUM(d / 7), AVG(x), COUNT(1 + x) FROM {t} WHERE x < 5;
-- shrinks
SELECT SUM(CAST(d AS DOUBLE)), AVG(i / 4), SUM(CAST(d AS DECIMAL(30, 5)) * 3), AVG(d * d) FROM {t};
-- shrinks
SELECT SUM(l + 1), MAX(i), COUNT(*) FROM {t} WHERE i > 5 AND d = 100.5;
-- shrinks
SELECT SUM(x), AVG(x), SUM(x + 1), MAX(ABS(x)), COUNT(*) FILTER (WHERE x > 1) FROM {t} WHERE x < 2000;
-- shrinks
SELECT part, SUM(x) FILTER (WHERE part < 2), SUM(l - 5) FILTER (WHERE l > 5) FROM {t} WHERE x < 9 GROUP BY part;
-- shrinks
SELECT COUNT(DISTINCT s) FILTER (WHERE part = 1), SUM(DISTINCT d) FILTER (WHERE part > 0), COUNT(*) FROM {t};
-- shrinks
SELECT part, COUNT(DISTINCT d) FILTER (WHERE part <> 1), AVG(l) FROM {t} GROUP BY part;
-- shrinks
SELECT part, SUM(part * 2), MAX(part - 1) FROM {t} GROUP BY CUBE (part);
-- shrinks
SELECT 1 / x, COUNT(*) FROM {t} WHERE part = 1 AND x <> 0 GROUP BY 1 / x;
-- shrinks
SELECT part * -0.0D AS g, COUNT(DISTINCT -x), COUNT(*) FROM {t} GROUP BY CUBE (1);
-- shrinks
SELECT DISTINCT NAMED_STRUCT('a', x * 0, 'b', FLOAT(part) / -5) FROM {t};
-- shrinks
SELECT a.g, n, m FROM (SELECT x % 2 AS g, COUNT(*) n FROM {t} GROUP BY 1) a JOIN (SELECT CAST(CONCAT('-', part) AS DOUBLE) AS g, COUNT(*) m FROM {t} GROUP BY 1) b ON a.g = b.g;
-- shrinks
SELECT COUNT(*) FROM {t} WHERE s LIKE 'k1%' AND YEAR(t) = 2020;
-- shrinks
SELECT SUM(l) / COUNT(l) + 1 AS a FROM {t} WHERE d > 4 HAVING a > 0;
-- shrinks
SELECT a.part, n, m FROM (SELECT part, COUNT(*) n FROM {t} WHERE l > 7 GROUP BY part) a JOIN (SELECT part, MAX(l) m FROM {t} GROUP BY part) b ON a.part = b.part;
-- shrinks
WITH c AS (SELECT COUNT(*) n FROM {t} WHERE i < 50) SELECT n FROM c UNION ALL SELECT MAX(l) FROM {t} WHERE i < 9;

-- left to Spark: the order of adding up, the sign of a zero or the rows themselves count
SELECT SUM(x) FROM {t};
SELECT SUM(id) FROM {t} WHERE i > 4;
SELECT COUNT(*) FROM {t} WHERE i > id;
SELECT COUNT(*) FROM {t} WHERE RAND() + i > -5 AND i > 4;
SELECT COUNT(*) FROM {t} TABLESAMPLE (100 ROWS) WHERE i > 4;
SELECT part, COUNT(*) FROM {t} f JOIN (VALUES (1)) v (k) ON f.part = v.k GROUP BY part;
SELECT SUM(x) FROM {t} WHERE x < 5 OR x > 900;
SELECT ROUND(SUM(x / 7), 6), ROUND(AVG(x), 6) FROM {t} WHERE x < 5;
SELECT MIN(x * -1) FROM {t} WHERE x BETWEEN -1 AND 0;
SELECT COUNT(*) FILTER (WHERE CAST(x AS STRING) = '0.0') FROM {t} WHERE i > 4;
SELECT COLLECT_SET(part) FROM {t} WHERE i > 4;
SELECT CAST(x AS STRING), COUNT(*) FROM {t} WHERE part = 1 AND x < 99 GROUP BY CAST(x AS STRING);
