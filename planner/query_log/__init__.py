"""The query log: its records, and what they say an index was good for."""
