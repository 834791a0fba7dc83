"""Queries in Spark: sessions, loading, indexing, and runs with and without the index."""
