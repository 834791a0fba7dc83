-- conversions
CAST(m AS MAP<STRING, INT>)['k'] = 5;
element_at(CAST(m AS MAP<STRING, INT>), 'k') = 5;
try_element_at(CAST(m AS MAP<STRING, INT>), 'k') = 5;
CAST(m AS MAP<STRING, FLOAT>)['k'] = 5.25F;
CAST(m AS MAP<STRING, STRING>)['k'] = '5.0';
CAST(m AS MAP<STRING, BOOLEAN>)['k'] = TRUE AND id < 900;
CAST(m AS MAP<STRING, DOUBLE>)['k'] = 5.25;
CAST(m['k'] AS INT) = 5;
CAST(st AS STRUCT<m: MAP<STRING, INT>, x: STRING, z: INT>).m['k'] = 5;
CAST(st AS STRUCT<m: MAP<STRING, INT>, x: STRING, z: INT>).z = 5;
CAST(cents AS MAP<STRING, DECIMAL(10, 0)>)['k'] = 5;
CAST(cents AS MAP<STRING, DECIMAL(10, 1)>)['k'] = 5.3;
cents['k'] = 5.25;
cents['k'] = 5.250;
cents['k'] > 999.999;
CAST(at AS MAP<STRING, DATE>)['k'] = DATE'2024-01-03';
CAST(at AS MAP<STRING, TIMESTAMP>)['k'] = TIMESTAMP'2024-01-03 04:00:00';
at['k'] = TIMESTAMP_NTZ'2024-01-03 04:00:00';
at['k'] < DATE'2024-01-02';
CAST(big AS MAP<STRING, INT>)['k'] = 5;
big['k'] = 5;
CAST(by_day AS MAP<STRING, STRING>)['2024-01-01'] = 'v5';
CAST(by_day AS MAP<TIMESTAMP, STRING>)[TIMESTAMP'2024-01-01'] = 'v5';
by_day[DATE'2024-01-01'] = 'v37';
CAST(n AS MAP<BIGINT, BIGINT>)[1L] = 5;
CAST(n AS MAP<STRING, INT>)['1'] = 5;
CAST(n AS MAP<TINYINT, BIGINT>)[1Y] = 5;
n[1.0] = 5;
element_at(n, 1L) = 5;
nested['k']['k'] = 5;
CAST(nested AS MAP<STRING, MAP<STRING, STRING>>)['k']['k'] = '5';
map_entries(m)[0].value = 5.25;
map_values(m)[0] = 5.25;
transform_values(m, (k, v) -> INT(v))['k'] = 5;
map_filter(m, (k, v) -> v > 10)['k'] = 5.25;
map_concat(m, MAP('z', 1D))['k'] = 5.25;
IF(id > 5, m, MAP('k', 5.25D))['k'] = 5.25;
MAP('k', id)['k'] = 7;
m[CONCAT('', 'k')] = 5.25;
m[IF(id < 2000, 'k', 'K')] = 5.25;
m['k' COLLATE UTF8_LCASE] = 5.25;
CAST(m AS MAP<STRING COLLATE UTF8_LCASE, DOUBLE>)['K' COLLATE UTF8_LCASE] = 5.25;
by_day[DATE'2024-01-01'] COLLATE UTF8_LCASE = 'V37';
by_day[DATE'2024-01-01'] = 'V37' COLLATE UTF8_LCASE;
CAST(by_day[DATE'2024-01-01'] AS CHAR(5)) = 'v37';
by_day[DATE'2024-01-01'] = 'v37  ';
st.x COLLATE UTF8_LCASE = 'X37';
st.x = 'X37' COLLATE UNICODE_CI;
st.x COLLATE UTF8_LCASE IN ('X37', 'X74');
startswith(st.x COLLATE UTF8_LCASE, 'X37');
st.x COLLATE UTF8_BINARY_RTRIM = 'x37  ';
st.m['k'] = 5.25;
st.`y.z` = 37;
`a.b`['k'] = 37;
`it``s "odd" ü`['k.k'] = 41;
f['k'] = 5.25;
f['k'] = FLOAT(4.625);
f['k'] = FLOAT('NaN');
f['k'] = -0.0F;
f['k'] = 0.0F;
f['k'] <= 0;
f['k'] IN (FLOAT(0.0), FLOAT('NaN'), FLOAT(4.625));
NOT (f['k'] IN (FLOAT(0.0), FLOAT('NaN'))) AND id < 100;
NOT (f['k'] > FLOAT(-1));
isnan(f['k']);
flag['k'] AND id < 2010;
NOT flag['k'] AND id > 1990;
flag['k'] IS NULL;
flag['k'] <=> NULL;
flag['k'] = FALSE AND id > 1990;
flag['k'] IS NOT FALSE AND id < 2010;
(flag['k'] = TRUE) = FALSE AND id > 1990;
(m['k'] = 5.25) IS NOT TRUE AND id < 30;
(m['k'] = 5.25 OR rand() > 2) AND id < 4000;
m['k'] = 5.25 OR (upper(st.x) = 'X37' AND id = 1);
upper(st.x) = 'X37' AND id = 1 OR i = 37;
NOT (upper(st.x) = 'X37' AND i = 37) AND i < 50;
NOT (upper(st.x) <> 'X37' OR i <> 37);
CASE WHEN m['k'] = 5.25 THEN TRUE WHEN m['k'] = 5.5 THEN NULL ELSE FALSE END;
m['k'] = (SELECT 5.25);
m['k'] IN (SELECT 5.25 UNION SELECT 5.5);
m['k'] BETWEEN 5 AND 6 AND n[1] <> 21;
n[1] IN (5, 6, NULL);
n[1] NOT IN (5, NULL);
n[1] IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, NULL);
n[1] IN (5, '6', 7.0);
n[1] <=> 5 OR n[1] = 6;
m['k'] = n[1];
named_struct('a', m['k']).a = 5.25;
struct(m['k'], n[1]) = struct(9.25, 37);
-- text of any bytes
s = CAST(X'61FF' AS STRING);
s = CAST(X'61C3' AS STRING) OR s = 'word 37';
CAST(X'61FF' AS STRING) = s;
s <=> CAST(X'61FF' AS STRING);
s <> CAST(X'61FF' AS STRING) AND id < 10;
s IN (CAST(X'61FF' AS STRING), 'word 37', NULL);
s NOT IN (CAST(X'61FF' AS STRING), 'word 37') AND id < 10;
s IN (CAST(UNHEX('61F0') AS STRING), CAST(UNHEX('61F1') AS STRING), CAST(UNHEX('61F2') AS STRING), CAST(UNHEX('61F3') AS STRING), CAST(UNHEX('61F4') AS STRING), CAST(UNHEX('61F5') AS STRING), CAST(UNHEX('61F6') AS STRING), CAST(UNHEX('61F7') AS STRING), CAST(UNHEX('61F8') AS STRING), CAST(UNHEX('61F9') AS STRING), CAST(UNHEX('61FA') AS STRING), CAST(UNHEX('61FB') AS STRING), CAST(UNHEX('61FC') AS STRING), CAST(UNHEX('61FD') AS STRING), CAST(UNHEX('61FE') AS STRING));
s > CAST(X'61FE' AS STRING) AND s < 'b';
s >= CAST(X'61FE' AS STRING) AND s <= CAST(X'61FF' AS STRING);
s < CAST(X'6181' AS STRING);
s BETWEEN CAST(X'61C0' AS STRING) AND CAST(X'61C1' AS STRING);
NOT (s < CAST(X'61FF' AS STRING)) AND s < 'b';
startswith(s, CAST(X'61FF' AS STRING));
NOT startswith(s, CAST(X'61FF' AS STRING)) AND id < 10;
s LIKE CONCAT(CAST(X'61FF' AS STRING), '%');
startswith(s, CAST(X'FF' AS STRING));
startswith(s, CAST(X'C3' AS STRING)) AND id < 30;
s = 'a�';
s >= 'a�' AND s < 'b';
s < 'a�' AND s > 'a';
s LIKE 'a�%';
s LIKE 'a_';
s LIKE 'a%';
length(s) = 2 AND s > 'a';
st.x = CAST(X'7833FF' AS STRING);
raw['k'] = CAST(X'76FF' AS STRING);
raw['k'] IN (CAST(X'76FF' AS STRING), 'v37');
raw['k'] > CAST(X'76FE' AS STRING);
startswith(raw['k'], CAST(X'76FF' AS STRING));
raw[CAST(X'6BFF' AS STRING)] = 'v';
element_at(raw, CAST(X'6BFF' AS STRING)) = 'v';
s = decode(X'61FF', 'UTF-8');
s = '\uD800';
s = 'é' OR s = 'é';
-- values of other types
b AND id < 2010;
NOT b AND id > 1990;
b <=> NULL;
NOT (b <=> TRUE) AND id > 1990;
b = (i > 5) AND id < 10;
d = DOUBLE('NaN');
d IN (DOUBLE('NaN'), 38D);
d NOT IN (DOUBLE('NaN'), 38D) AND id < 100;
d = -0.0D;
d IN (-0.0D, 7D);
d IN (0.0D, 4100D, 4101D, 4102D, 4103D, 4104D, 4105D, 4106D, 4107D, 4108D, 4109D, 4110D);
d NOT IN (0.0D, 4100D, 4101D, 4102D, 4103D, 4104D, 4105D, 4106D, 4107D, 4108D, 4109D, 4110D) AND d < 40;
d NOT IN (0.0D, 4100D) AND d < 40;
d <=> DOUBLE('NaN');
NOT (d < DOUBLE('NaN'));
d > DOUBLE('Infinity');
ts = TIMESTAMP'2024-03-31 03:00:00 Europe/Berlin';
ts = TIMESTAMP'2024-03-31 02:30:00';
CAST(ts AS DATE) = DATE'2024-04-01' AND ts < TIMESTAMP'2024-04-01 01:00:00';
ts < DATE'2024-04-01';
ts > TIMESTAMP_NTZ'2024-04-01 00:00:00' AND ts < '2024-04-02';
date_trunc('HOUR', ts) = TIMESTAMP'2024-03-31 02:00:00';
ts - INTERVAL '1' HOUR = TIMESTAMP'2024-03-31 00:30:00Z';
dec = 5.25;
dec = 5.2500;
dec = 5.251;
dec > 999.995;
dec IN (5.25, 5, 5.255);
wide = 5.25;
wide IN (5.25, 5.123456789);
CAST(dec AS INT) = 5;
CAST(i AS TINYINT) = 5 AND i < 100;
CAST(i AS STRING) = '37';
i = '37';
i = 37.0;
i = 37.5;
i IN (37, '74', 37.5);
i IN (37, 3000000000);
i = 3000000037;
i < 2147483648 AND id < 5;
i = NULL;
i <=> NULL;
NOT (i <=> 37) AND id < 3;
coalesce(i, 5) = 37;
nullif(i, 37) IS NULL;
i % 4000 = 37;
-- what is sure still drops row groups
-- shrinks
m['k'] = 5.25;
-- shrinks
cents['k'] = 5.25;
-- shrinks
at['k'] = TIMESTAMP_NTZ'2024-01-03 04:00:00';
-- shrinks
big['k'] = 5;
-- shrinks
by_day[DATE'2024-01-01'] = 'v74';
-- shrinks
st.m['k'] = 5.25;
-- shrinks
st.x = CAST(X'7833FF' AS STRING);
-- shrinks
st.`y.z` = 37;
-- shrinks
`a.b`['k'] = 37;
-- shrinks
`it``s "odd" ü`['k.k'] = 41;
-- shrinks
f['k'] = FLOAT(4.75);
-- shrinks
f['k'] = -0.0F;
-- shrinks
flag['k'] AND id < 4000;
-- shrinks
flag['k'] IS NULL;
-- shrinks
s = CAST(X'61FF' AS STRING);
-- shrinks
CAST(X'61FF' AS STRING) = s OR i = 37;
-- shrinks
s IN (CAST(X'61FF' AS STRING), 'word 37', NULL);
-- shrinks
s = 'a�';
-- shrinks
raw['k'] = CAST(X'76FF' AS STRING);
-- shrinks
upper(st.x) = 'X37' AND id < 9000 AND i = 37 OR i = 74;
-- shrinks
m['k'] = 5.25 OR (upper(st.x) = 'X37' AND i = 1);
-- shrinks
n[1] IN (5, 6, NULL);
-- shrinks
n[1] IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, NULL) AND m['k'] < 1;
