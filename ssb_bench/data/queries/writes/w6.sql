-- title: = the least of a list
-- keys: recent
-- count: 1
-- most-seconds: 0.3
SELECT count(*), sum(lo_revenue) FROM $table WHERE id = (SELECT min(id) FROM listed)
