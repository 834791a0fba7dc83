"""The command line `ssb-bench`."""
