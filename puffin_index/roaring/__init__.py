"""Row sets in the portable roaring format: written, read, moved and united by array operations."""
