"""The command line `puffin-index`: the commands on the index itself."""
