-- title: join with a list of 1,000
-- keys: recent
-- count: 1000
-- most-seconds: 0.3
SELECT count(*), sum(lo_revenue) FROM $table JOIN listed USING (id)
