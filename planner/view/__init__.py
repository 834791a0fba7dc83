"""Index views: one version of an index, read for planning."""
