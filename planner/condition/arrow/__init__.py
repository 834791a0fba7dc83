"""Conditions as Arrow's expressions: the form in which Arrow hands them out, and how it is read."""
