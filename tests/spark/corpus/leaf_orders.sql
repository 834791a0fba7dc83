-- first rows in the order of a leaf of a struct
SELECT k FROM {t} ORDER BY inner.leaf DESC, k LIMIT 2;
SELECT * FROM {t} ORDER BY inner.leaf DESC NULLS LAST, k LIMIT 2;
SELECT inner.deep.word AS w, k FROM {t} WHERE inner.leaf > 880 ORDER BY inner.leaf DESC, k LIMIT 1;
SELECT w FROM (SELECT inner.deep AS d, d.word AS w, k FROM {t}) ORDER BY d.word DESC, k LIMIT 1;
SELECT inner.leaf, k FROM {t} WHERE small % 7 = 3 ORDER BY 1 DESC, 2 LIMIT 1 OFFSET 1;
SELECT k FROM (SELECT k, rank() OVER (ORDER BY inner.leaf DESC) AS n FROM {t}) WHERE n <= 2;
SELECT max(k) FROM {t} WHERE k > (SELECT k FROM {t} ORDER BY inner.leaf DESC, k LIMIT 1);
