"""Row groups that have the first rows a query wants: `LIMIT k`, and `ORDER BY column LIMIT k`."""
