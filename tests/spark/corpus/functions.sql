-- functions of one column that few values satisfy
-- shrinks
small % 1000 = 7;
-- shrinks
abs(small) = 499;
-- shrinks
small + 1 = -499;
-- shrinks
CAST(small AS STRING) RLIKE '^49[89]$';
-- shrinks
CASE WHEN small = 3 THEN 'three' ELSE 'other' END = 'three';
-- shrinks
coalesce(small, 1000) = 999;
-- shrinks
CAST(day AS STRING) = '1969-01-01';
-- shrinks
year(day) = 2100;
-- shrinks
date_format(day, 'yyyy-MM-dd') = '1970-02-03';
-- shrinks
upper(inner.deep.word) = 'DEEP-77';
-- shrinks
inner.deep.word LIKE '%p-77';
-- shrinks
length(inner.deep.word) < 7 AND inner.deep.word RLIKE '-[3]$';
-- shrinks
concat(tags['color'], '!') = 'c11!';
-- shrinks
hex(code) = '01000005';
-- shrinks
CAST(double AS STRING) = 'NaN';
-- shrinks
double * 7 = 21;
-- shrinks
single - 1 = 0.125;
-- shrinks
wide / 2 > 149500000000000000000000;
-- shrinks
NOT (upper(inner.deep.word) <> 'DEEP-77');
-- shrinks
upper(inner.deep.word) = 'DEEP-77' OR small % 1000 = 7;
-- shrinks
small % 1000 = 7 OR small IN (8, 9);
-- shrinks
money + 1 = 3.10;
-- shrinks
100 - money > 99;
-- shrinks
middle / 3 < 2;
-- shrinks
-middle <= -31405;
-- shrinks
(small % 1000 = 7 OR day IS NULL) AND upper(inner.deep.word) = 'NONE';

-- others
coalesce(small, -1) = -1;
small % 100 = 7 IS NULL;
NOT (small % 2 = 0);
money div 0.00000000000000001 < 0;
CAST(CONCAT(k % 24, ':00:00') AS TIMESTAMP) > current_date();
money div -0.00000000000000001 > 0;
k div 0.0000000000000001 < 0;
(small % 2 = 0) <=> NULL;
upper(coalesce(inner.deep.word, 'x')) = 'X';
if(double = 0, 1, 0) = 1;
CAST(double AS STRING) = '-0.0';
1 / double > 0;
double + 0 > 1 OR isnan(double);
try_divide(1, single) < 0;
small + day > day;
small % 7 = large % 7;
rand() < 0.5 AND small < -1000;
size(transform(split(word, ''), c -> upper(c))) = 3;
key = upper(key);
length(word) > 6 OR bytes IS NULL;
CAST(CAST(small AS STRING) AS INT) = 5;
CAST(inner.deep.word AS INT) = 5;
small IN (SELECT max(small) % 100 FROM lake.functions.types);
EXISTS (SELECT 1);
unhex(hex(code)) = code;
CAST(flag AS INT) + 1 = 2;
middle * 2 = 4;
date_trunc('month', moment) = TIMESTAMP '1970-01-01';
