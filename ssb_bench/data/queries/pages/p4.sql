-- title: a visitor, in bursts
-- chosen: SELECT max_by(visit, xxhash64(id)) AS visit FROM lineorder WHERE lo_linenumber = 5
-- times-as-fast: 10
SELECT * FROM lineorder WHERE visit = $visit
