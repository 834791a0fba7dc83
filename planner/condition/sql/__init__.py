"""SQL WHERE text, read as Spark reads it."""
