-- title: DELETE of 100 by subquery
-- keys: recent scattered
-- count: 100
-- times-as-fast: 10
-- properties: 'write.delete.mode'='merge-on-read'
DELETE FROM $table WHERE id IN (SELECT id FROM $source WHERE id <= $last)
