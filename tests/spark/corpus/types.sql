-- shrinks
SELECT * FROM {t} WHERE k = 1234;
-- shrinks
SELECT * FROM {t} WHERE k IN (5, 6, 99999);
SELECT * FROM {t} WHERE flag AND k < 30;
SELECT k, flag FROM {t} WHERE NOT flag AND k BETWEEN 10 AND 60;
SELECT COUNT(*) FROM {t} WHERE flag IS NULL;
-- shrinks
SELECT * FROM {t} WHERE small = 33;
-- shrinks
SELECT k, small FROM {t} WHERE small > 498.5;
SELECT k, small FROM {t} WHERE small NOT IN (1, NULL) AND k < 40;
SELECT k, small FROM {t} WHERE NOT (small <=> 77) AND k < 20;
-- shrinks
SELECT * FROM {t} WHERE large = 6200;
-- shrinks
SELECT k, large FROM {t} WHERE large = 9223372036854775807;
-- shrinks
SELECT k, large FROM {t} WHERE large < -9223372036854775807;
-- shrinks
SELECT * FROM {t} WHERE single = CAST(12.5 AS FLOAT);
SELECT k, single FROM {t} WHERE isnan(single);
SELECT k, single FROM {t} WHERE single = 0.0 AND k < 2000;
SELECT k, single FROM {t} WHERE single > 374;
-- shrinks
SELECT * FROM {t} WHERE double = 22;
SELECT k, double FROM {t} WHERE double = DOUBLE('NaN') OR double = DOUBLE('-Infinity');
SELECT k, double FROM {t} WHERE NOT (double <= 428.2);
SELECT k, double FROM {t} WHERE double = -0.0D;
-- shrinks
SELECT * FROM {t} WHERE money = 12.04;
-- shrinks
SELECT k, money FROM {t} WHERE money BETWEEN 100.1 AND 100.5;
-- shrinks
SELECT * FROM {t} WHERE middle = 104.7290;
-- shrinks
SELECT * FROM {t} WHERE wide = 4200000000000000000000;
SELECT k, wide FROM {t} WHERE wide < 200000000000000000000.5;
-- shrinks
SELECT * FROM {t} WHERE day = DATE'1970-06-01';
-- shrinks
SELECT k, day FROM {t} WHERE day < '1969-01-04';
SELECT YEAR(day), COUNT(*) FROM {t} WHERE YEAR(day) = 1971 GROUP BY YEAR(day);
-- shrinks
SELECT * FROM {t} WHERE local = TIMESTAMP_NTZ'1970-01-01 13:00:07.000001';
-- shrinks
SELECT k, local FROM {t} WHERE local < TIMESTAMP_NTZ'1970-01-01 14:00:00';
-- shrinks
SELECT * FROM {t} WHERE moment = TIMESTAMP'1970-01-01 13:00:07.000001Z';
-- shrinks
SELECT k, moment FROM {t} WHERE moment BETWEEN TIMESTAMP'1970-01-01 13:00:00Z' AND TIMESTAMP'1970-01-01 15:30:00+01:00';
SELECT k, moment FROM {t} WHERE DATE(moment) = DATE'1970-01-02' AND k < 50;
-- shrinks
SELECT * FROM {t} WHERE word = '9e3779b1';
SELECT k, word FROM {t} WHERE word = '' OR word = 'it\'s';
SELECT k, word FROM {t} WHERE word LIKE 'ff%';
SELECT k, word FROM {t} WHERE word > 'ffc' ORDER BY word LIMIT 3;
-- shrinks
SELECT * FROM {t} WHERE bytes = X'0004D2';
SELECT k, bytes FROM {t} WHERE bytes < X'000003';
SELECT * FROM {t} WHERE code = X'010004D2';
SELECT k, key FROM {t} WHERE key = '00001348-0000-0000-0000-000000000000';
-- shrinks
SELECT k, key FROM {t} WHERE key = '00000002-ac00-0000-0000-000000000000';
SELECT k, key FROM {t} WHERE key = '00000002-AC00-0000-0000-000000000000';
SELECT k, key FROM {t} WHERE key <> '00000002-AC00-0000-0000-000000000000' AND k BETWEEN 170 AND 172;
SELECT k, key FROM {t} WHERE key <> '00000002-ac00-0000-0000-000000000000' AND k BETWEEN 170 AND 172;
-- shrinks
SELECT k, key FROM {t} WHERE key IN ('00000002-ac00-0000-0000-000000000000', '00000002-b000-0000-0000-000000000000');
SELECT k, key FROM {t} WHERE key IN ('00000002-ac00-0000-0000-000000000000', '00000002-B000-0000-0000-000000000000', 'b');
SELECT k, key FROM {t} WHERE key < '00000002-ac00-0000-0000-000000000000' AND k > 150;
SELECT k, key FROM {t} WHERE key >= '00000002-a' AND key < '00000002-b';
SELECT k, key FROM {t} WHERE key IS NULL AND k < 30;
-- shrinks
SELECT * FROM {t} WHERE inner.leaf = 39;
-- shrinks
SELECT k, inner FROM {t} WHERE inner.deep.word = 'deep-77';
SELECT k, inner.deep FROM {t} WHERE inner IS NULL AND k < 60;
SELECT k FROM {t} WHERE inner.leaf > 890 AND small IS NULL;
SELECT k, tags FROM {t} WHERE tags['color'] = 'c5';
SELECT k, items FROM {t} WHERE items[0] = 1234;
SELECT k, item FROM {t} LATERAL VIEW EXPLODE(items) AS item WHERE k = 1234;
-- shrinks
SELECT a.k, b.money FROM {t} a JOIN {t} b ON a.k = b.small WHERE a.money = 12.04 AND b.k = 672;
SELECT COUNT(*) FROM {t} a FULL JOIN {t} b ON a.word = b.word AND a.k = 5 WHERE a.day IS NOT NULL AND a.k < 10;
SELECT k FROM {t} WHERE day = (SELECT MAX(day) FROM {t} WHERE money < 1) OR k = 3;
