"""The workers of systems, each in an environment that has its library."""
