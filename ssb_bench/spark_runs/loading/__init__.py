"""Making the tables of the benchmark: dimensions, lineorder in row groups of a wanted size, Parquet bloom filters."""
