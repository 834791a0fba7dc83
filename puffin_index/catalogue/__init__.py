"""The index table: its rows, its commits, its files; what it covers of the data table and what it lacks."""
