-- title: MERGE merge-on-read of 1,100
-- keys: recent scattered
-- count: 1000
-- times-as-fast: 10
-- properties: 'write.merge.mode'='merge-on-read'
MERGE INTO $table t USING $source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
