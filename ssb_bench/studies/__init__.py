"""Studies: appends, keys in bursts, scale, tables in a store."""
