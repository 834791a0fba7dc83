"""Queries after they were planned: what is kept of each, and its record for the query log."""
