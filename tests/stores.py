"""A catalog whose tables are in a store that counts its requests."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from ssb_bench.stores.server import BUCKET, Distance, StoreServer, Traffic


class SomebodysFileIO(PyArrowFileIO):
    """Reads S3 as PyIceberg reads every other store: of subclasses nobody knows what they do otherwise."""


FAR = Distance(milliseconds=300)
"""So far away that requests of one round overlap on the slowest machine."""


@contextmanager
def store_catalog(server: StoreServer, folder: Path, **properties: str) -> Iterator[SqlCatalog]:
    """A catalog in a folder, with its tables below the folder's name in the store."""
    own = {"uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": f"s3://{BUCKET}/{folder.name}"}
    with closing(SqlCatalog("local", **own, **server.properties | properties)) as catalog:
        catalog.create_namespace("ns")
        yield catalog


@contextmanager
def far_away(server: StoreServer, found: list[Traffic]) -> Iterator[None]:
    """Put the store far away meanwhile; what is asked of it is added to `found`."""
    server.move(FAR)
    server.traffic()
    try:
        yield
    finally:
        found.append(server.traffic())
        server.move(Distance())
