"""Split-level indexes for Apache Iceberg tables, kept in Puffin files beside the table."""

from puffin_index.catalogue.scope import BuildScope
from puffin_index.definition.index_definition import IndexDefinition, IndexedColumn
from puffin_index.errors import PuffinIndexError
from puffin_index.jobs.build_handle import BuildHandle
from puffin_index.jobs.build_job import BuildProgress, BuildReport
from puffin_index.table_index import IndexStatus, TableIndex

__all__ = [
    "BuildHandle",
    "BuildProgress",
    "BuildReport",
    "BuildScope",
    "IndexDefinition",
    "IndexStatus",
    "IndexedColumn",
    "PuffinIndexError",
    "TableIndex",
]
