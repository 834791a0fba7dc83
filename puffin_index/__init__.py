"""Split-level indexes for Apache Iceberg tables, kept in Puffin files beside the table."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from puffin_index.definition.index_definition import (
        IndexDefinition as IndexDefinition,
        IndexedColumn as IndexedColumn,
    )
    from puffin_index.errors import PuffinIndexError as PuffinIndexError
    from puffin_index.index_table.status import BuildScope as BuildScope, IndexStatus as IndexStatus
    from puffin_index.jobs.build_handle import BuildHandle as BuildHandle
    from puffin_index.jobs.build_job import BuildProgress as BuildProgress, BuildReport as BuildReport
    from puffin_index.table_index import TableIndex as TableIndex

    __version__: str

_HOMES: Final = {
    "BuildHandle": "jobs.build_handle",
    "BuildProgress": "jobs.build_job",
    "BuildReport": "jobs.build_job",
    "BuildScope": "index_table.status",
    "IndexDefinition": "definition.index_definition",
    "IndexStatus": "index_table.status",
    "IndexedColumn": "definition.index_definition",
    "PuffinIndexError": "errors",
    "TableIndex": "table_index",
}
"""The module of each name, imported when somebody asks: PyIceberg takes half a second, and `--help` needs none."""

__all__ = ["__version__"]
__all__ += list(_HOMES)


def __dir__() -> list[str]:
    """The names of the interface, for completion: they are no attributes yet."""
    return __all__


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("puffin-index")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
