"""The command line `puffin-index`: builds, and what concerns queries."""
