"""Conditions as Spark sends them: their nodes, and how nodes are read."""
