"""Segments, each one Puffin file of payloads: writing, reading, directories, merging, inspection."""
