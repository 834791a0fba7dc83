-- title: one order price
-- note: the equality of one column; min and max of a row group never exclude it
-- param: price lo_ordtotalprice = 19665277
SELECT count(*) FROM lineorder WHERE lo_ordtotalprice = $price
