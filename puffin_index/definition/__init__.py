"""Index definitions: columns, kinds and options, from Python or from table properties."""
