"""Scans of a snapshot: planning one, its data files and deleted rows, reading and counting its rows."""
