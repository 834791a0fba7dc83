"""The tree of a condition over field ids and keys, and what of it drops row groups."""
