"""The kind `bitmap`: for each distinct value of a row group the set of its rows."""
