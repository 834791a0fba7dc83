-- title: join with a list of 3
-- note: the list is made in Python
-- times-as-fast: 4
SELECT * FROM lineorder JOIN listed USING (lo_custkey)
