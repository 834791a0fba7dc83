"""Where workloads come from: SQL statements, and the hook's own query log."""
