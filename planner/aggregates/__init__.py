"""Aggregates: from statistics and indexes as far as these are exact, and from the data of the other row groups."""
