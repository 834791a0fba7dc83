-- title: a part of two words, in any case
-- note: without Spark, nobody knows the case of letters beyond ASCII
-- times-as-fast: 15
SELECT * FROM lines WHERE message ILIKE '%shard LOS%'
