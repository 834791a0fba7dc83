-- title: an element of one row in 100,000
-- times-as-fast: 10
SELECT * FROM lines WHERE array_contains(labels, 'l77777')
