"""The plugin for Spark: `io.puffinindex.spark.PuffinIndexPlugin` enables all sessions of an application."""
