"""Segments: one Puffin file of payloads each. Writing, reading, directories, merging, inspection, exchange."""
