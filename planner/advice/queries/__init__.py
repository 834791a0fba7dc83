"""Where workloads come from: SQL statements, event logs of Spark, and the hook's own query log."""
