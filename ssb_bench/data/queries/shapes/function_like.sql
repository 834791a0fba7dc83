-- title: the digits of an order price
-- note: there are too many prices to evaluate the function for each, and the text does not rise with the price
-- param: price lo_ordtotalprice = 19665277
SELECT count(*), sum(lo_revenue) FROM lineorder WHERE CAST(lo_ordtotalprice AS STRING) LIKE '%$price'
