"""The data table, read only: snapshots, data files, footers, columns, partition constants, deleted rows."""
