"""A Spark session as statements see it: its tables by name, their indexes, and builds in the background."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from planner.spark.catalogs import SparkCatalogs, open_spark_catalog
from planner.spark.rules import session_conf
from puffin_index.errors import CatalogError, NotFoundError, UnsupportedError
from puffin_index.index_table.status import WHOLE_TABLE, BuildScope
from puffin_index.jobs.build_handle import BuildHandle
from puffin_index.jobs.build_job import BuildReport
from puffin_index.table_index import TableIndex

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = re.compile(r"`(?:[^`]|``)+`|[^`.]+")


@dataclass(frozen=True, slots=True)
class StatementTable:
    """A table that a statement names, and its catalog by Spark's name and as PyIceberg sees it."""

    catalog_name: str
    catalog: Catalog
    name: str

    def __str__(self) -> str:
        return f"{self.catalog_name}.{self.name}"

    def index(self) -> TableIndex:
        """Open the index of the table, or raise NotFoundError if the table or its index does not exist."""
        return TableIndex.open(self.catalog, self.name)


class Builds:
    """The latest build in the background of each table. Builds of one table run one after another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, BuildHandle] = {}

    def start(
        self, table: StatementTable, index: TableIndex, spark: SparkSession, scope: BuildScope = WHOLE_TABLE
    ) -> BuildHandle:
        """Start a build in the background, after the one that runs now."""
        with self._lock:
            handle = index.build_async(spark, scope=scope, after=self._latest.get(str(table)))
            self._latest[str(table)] = handle
        return handle

    def run(
        self, table: StatementTable, index: TableIndex, spark: SparkSession, scope: BuildScope = WHOLE_TABLE
    ) -> BuildReport:
        """Build and wait; a build that runs in the background ends first."""
        running = self.latest(table)
        if running is not None:
            running.join()
        return index.build(spark, scope=scope)

    def latest(self, table: StatementTable) -> BuildHandle | None:
        """Return the latest build of a table in the background; None if there was none."""
        with self._lock:
            return self._latest.get(str(table))


class StatementSession:
    """A session that executes a statement."""

    def __init__(self, spark: SparkSession, catalogs: SparkCatalogs, builds: Builds) -> None:
        self.spark = spark
        self.builds = builds
        self._catalogs = catalogs
        self._conf = session_conf(spark)
        self.zone = str(spark.conf.get("spark.sql.session.timeZone"))

    def table(self, text: str) -> StatementTable:
        """Find a table by its name as in SQL; a name without a catalog is one of the current catalog.

        Raises NotFoundError if the text is no name, and what `table_of` raises.
        """
        parts = _parts(text)
        if not parts:
            raise NotFoundError(f"{text!r} is not a table name: it should read catalog.namespace.table")
        if len(parts) > 1 and self._has_catalog(parts[0]):
            return self.table_of(parts[0], parts[1:])
        namespace = _parts(self.spark.catalog.currentDatabase()) if len(parts) == 1 else []
        return self.table_of(self.spark.catalog.currentCatalog(), [*namespace, *parts])

    def table_of(self, catalog_name: str, name: list[str]) -> StatementTable:
        """Find a table by its catalog in Spark, and the parts of its name there.

        Raises UnsupportedError if a part has a dot, CatalogError if PyIceberg cannot open the catalog.
        """
        for part in name:
            # Names are joined with dots from here on, where ("a", "b.c") would be the table of ("a", "b", "c").
            if "." in part:
                raise UnsupportedError(
                    f"{part!r} of table {'.'.join(name)} has a dot: such tables cannot be indexed, so rename it"
                )
        catalog = self._catalogs.find(catalog_name, self._conf)
        if catalog is None:
            if not self._has_catalog(catalog_name):
                raise CatalogError(f"catalog {catalog_name!r} is none of this session's Iceberg catalogs")
            # The look-up only warned of the reason.
            catalog = open_spark_catalog(self._conf, catalog_name)
        return StatementTable(catalog_name, catalog, ".".join(name))

    def _has_catalog(self, name: str) -> bool:
        return self._catalogs.is_given(name) or f"spark.sql.catalog.{name}" in self._conf


def _parts(text: str) -> list[str]:
    """Split a name as in SQL; empty if the text is no name."""
    parts = _NAME.findall(text)
    plain = [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts]
    return plain if ".".join(parts) == text else []
