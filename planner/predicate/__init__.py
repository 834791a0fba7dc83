"""Predicates bound to fields and keys, and their trees."""
