"""The data files and row groups of a snapshot, with what deletes their rows."""
