"""The Star Schema Benchmark, to measure what the index is worth."""
