"""The index kinds: one folder each, and the registry that lists them."""
