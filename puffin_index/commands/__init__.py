"""The command line `puffin-index`: what concerns the index itself."""
