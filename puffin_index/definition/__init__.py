"""What to index: columns, kinds and options, from Python or from table properties."""
