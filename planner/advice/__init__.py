"""What an index would change before it is built, and which indexes a workload is worth."""
