-- title: a request's id
-- chosen: SELECT regexp_extract(max(message), 'request ([0-9A-F]+)', 1) AS request FROM lines WHERE message LIKE 'INFO%' AND id < 9999
-- times-as-fast: 15
SELECT * FROM lines WHERE message LIKE '%request $request of%'
