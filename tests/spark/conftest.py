"""One real Spark session with Iceberg for all Spark tests, and the same catalog seen from PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from ssb_bench.session import create_session, open_catalog


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the shared catalog and its tables."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def spark(warehouse: Path) -> Iterator[SparkSession]:
    """A local session with the stock Iceberg runtime; its catalog is called `lake`."""
    session = create_session(warehouse, memory="2g", name="tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def catalog(warehouse: Path) -> SqlCatalog:
    """The same catalog, opened by PyIceberg."""
    return open_catalog(warehouse)
