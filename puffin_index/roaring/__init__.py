"""Row sets in the portable roaring format: written by array operations, read and united."""
