-- title: a word of every eighth line
-- times-as-fast: 0.98
SELECT * FROM lines WHERE message LIKE '%Firefox%'
