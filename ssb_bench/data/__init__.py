"""The benchmark data: SSB tables, queries, and where they lie."""
