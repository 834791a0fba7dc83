"""The index table: its rows, commits and files, and its coverage of the data table."""
