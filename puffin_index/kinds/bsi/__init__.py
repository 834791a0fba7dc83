"""The kind `bsi`: numbers, or codes of a sorted dictionary, as one row set a bit."""
