-- shrinks
SELECT * FROM {t} WHERE orderkey = 4711;
-- shrinks
SELECT orderkey, price FROM {t} WHERE orderkey IN (5, 6, 7);
-- shrinks
SELECT COUNT(*) FROM {t} WHERE orderkey BETWEEN 100 AND 101;
-- shrinks
SELECT SUM(price) FROM {t} WHERE price BETWEEN 400100 AND 400300 AND quantity < 40;
SELECT COUNT(*), MIN(orderkey), MAX(note.size) FROM {t} WHERE mode IS NULL;
SELECT COUNT(*) FROM {t} WHERE price IS NULL AND mode = 'AIR';
-- shrinks
SELECT orderkey FROM {t} WHERE NOT (orderkey <> 12);
-- shrinks
SELECT orderkey FROM {t} WHERE price > 990000 AND note.size = 31;
SELECT COUNT(*) FROM {t} WHERE quantity = 3;
SELECT orderkey, price FROM {t} WHERE orderkey = 17 OR orderkey = 18;
SELECT COUNT(*) FROM {t} WHERE price = 5;
-- shrinks
SELECT COUNT(*) FROM {t} VERSION AS OF {old} WHERE orderkey = 3001;
-- shrinks
SELECT COUNT(*) FROM {t} VERSION AS OF 'first' WHERE orderkey = 17;
-- shrinks
SELECT COUNT(*) FROM {t} TIMESTAMP AS OF '{then}' WHERE orderkey = 17;
-- shrinks
SELECT a.orderkey, b.orderkey FROM {t} a JOIN {t} b ON a.orderkey + 1 = b.orderkey WHERE a.orderkey = 40 AND b.orderkey = 41;
-- shrinks
SELECT _file, _pos, orderkey FROM {t} WHERE orderkey = 2222;
