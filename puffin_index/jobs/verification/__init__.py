"""Whether an index is right: its files by their checksums, its answers by the data."""
