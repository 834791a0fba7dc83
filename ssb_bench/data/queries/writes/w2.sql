-- title: MERGE copy-on-write of 1,100
-- keys: recent
-- count: 1000
-- times-as-fast: 2
-- properties: 'write.merge.mode'='copy-on-write'
MERGE INTO $table t USING $source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
