-- title: a word of one line in a million
-- times-as-fast: 15
SELECT * FROM lines WHERE message LIKE '%quorum%'
