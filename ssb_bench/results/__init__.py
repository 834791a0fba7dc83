"""What was measured, as plain data and JSON files, and its statistics."""
