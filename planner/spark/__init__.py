"""Inside a Spark session: the hook, its settings, catalogs and filters, the Python data source, explain."""
