"""SQL statements about indexes: `CREATE INDEX`, `DROP INDEX` and the procedures of `puffin.system`."""
