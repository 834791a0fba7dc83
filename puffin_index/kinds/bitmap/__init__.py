"""The kind `bitmap`: the set of rows of each distinct value of a row group."""
