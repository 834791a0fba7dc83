"""Inside a Spark session: the hook, its settings, catalogs and filters, explain; the plugin for any application."""
