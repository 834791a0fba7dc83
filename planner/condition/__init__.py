"""Conditions: one tree of tests by field id and keys, its readers and its writers."""
