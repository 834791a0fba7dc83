"""Audits: what the index said of a query is compared with the data, in the background."""
