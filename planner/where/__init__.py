"""SQL WHERE text, read as Spark reads it, becomes PyIceberg expressions."""
