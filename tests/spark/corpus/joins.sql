-- joins and subqueries whose keys must drop nothing
SELECT f.id FROM {t} f LEFT JOIN {few} e ON f.i = e.i;
SELECT f.id FROM {t} f LEFT ANTI JOIN {few} e ON f.i = e.i;
SELECT f.id FROM {t} f WHERE f.i NOT IN (SELECT i FROM {few} WHERE i IS NOT NULL);
SELECT f.id FROM {t} f FULL JOIN {few} e ON f.i = e.i;
SELECT f.id FROM {t} f JOIN {few} e ON f.i <=> e.i;
SELECT f.id FROM {t} f WHERE EXISTS (SELECT 1 FROM {few} e WHERE e.i = f.i) OR f.i = 7;
