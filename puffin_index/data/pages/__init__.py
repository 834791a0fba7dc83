"""Pages of Parquet files: found by offset indexes, read without their neighbours, decoded by Arrow."""
