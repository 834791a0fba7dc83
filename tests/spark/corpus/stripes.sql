-- tests of columns that ORC stores in ways of their own
k IN (7, 30000);
name = SHA2('31415', 256);
cents = -123.45;
wide = -59999;
day = DATE'1949-12-31' OR day = DATE'2001-09-09';
at = TIMESTAMP_MICROS(-1000000000070000);
at BETWEEN TIMESTAMP'1969-12-30 00:00:00' AND TIMESTAMP'1970-01-02 00:00:00';
at < TIMESTAMP'1880-01-01 00:00:00';
local >= TIMESTAMP_NTZ'1969-12-31 23:59:59.5' AND local < TIMESTAMP_NTZ'1970-01-01 10:00:00';
s.a = 31415;
s.t.u = '31416';
x BETWEEN 100 AND 101;
NOT flag AND k < 20;
notes['k'] = 31415;
