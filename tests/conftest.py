"""A real SQLite catalog on disk with PyIceberg, no JVM."""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from puffin_index import IndexDefinition, TableIndex
from ssb_bench.stores.server import StoreServer, run_store

if TYPE_CHECKING:
    from tests.puffin_index.segments.segment_sample import SegmentSample
    from tests.shell import Shell

T = TypeVar("T")

# The same examples on every run, so that a change is what makes a test fail; `make nightly` looks for new ones.
settings.register_profile("repeatable", max_examples=30, derandomize=True, deadline=None)
settings.register_profile("nightly", max_examples=200, deadline=None)
settings.load_profile("repeatable")


def is_nightly() -> bool:
    """Whether everything is tried, because the profile is `nightly`."""
    return settings().max_examples == settings.get_profile("nightly").max_examples


def amount(few: int, many: int) -> int:
    """How much of something slow is tried: few in `make test`, many with the profile `nightly`."""
    return many if is_nightly() else few


def some(cases: Sequence[T], few: int) -> Sequence[T]:
    """Cases that resemble each other: `few` of them, the same in each run; all of them with the profile `nightly`."""
    return cases if is_nightly() else Random(few).sample(cases, min(few, len(cases)))


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in its own hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `make nightly` tries, and say which tests share a process.

    Two processes begin with tests that share a Spark session: they take longest.

    Those that start a JVM of their own stay together as well, and so do those of a module, which share its tables.
    """
    # Whoever names a test wants it.
    if not is_nightly() and not any("::" in argument for argument in config.args):
        cases: Counter[str] = Counter()
        left_out = [item for item in items if not _is_chosen(item, cases)]
        config.hook.pytest_deselected(items=left_out)
        without = set(left_out)
        items[:] = [item for item in items if item not in without]
    for item in items:
        if _shares_session(item):
            # Two sessions, one a process, take about as long as each other; one of them makes the corpus.
            is_answer = "/answers/" in item.nodeid or "corpus" in item.fixturenames
            item.add_marker(pytest.mark.xdist_group("answers" if is_answer else "session"))
        elif item.get_closest_marker("spark") or item.get_closest_marker("paimon"):
            item.add_marker(pytest.mark.xdist_group("jvm"))
        else:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: not _shares_session(item))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """End the run when what all tests share cannot be set up: hundreds would fail for the same reason."""
    try:
        return (yield)
    except Exception:
        if fixturedef.scope == "session":
            request.session.shouldfail = f"{fixturedef.argname}, which tests share, could not be set up"
        raise


def _is_chosen(item: pytest.Item, cases: Counter[str]) -> bool:
    """Whether `make test` runs a test; `cases` counts those of each function."""
    mark = item.get_closest_marker("one_of")
    if mark is None:
        return item.get_closest_marker("nightly") is None
    function = item.nodeid.partition("[")[0]
    cases[function] += 1
    return (cases[function] - 1) % int(mark.args[0]) == 0


def _shares_session(item: pytest.Item) -> TypeGuard[pytest.Function]:
    return isinstance(item, pytest.Function) and "spark" in item.fixturenames


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    """An S3 server behind a proxy that counts requests and can be moved away."""
    with run_store() as running:
        yield running


def catalog_in(folder: Path, uri_ending: str = "", **properties: str) -> SqlCatalog:
    """Open the catalog of a folder, called `local`, by options at the end of its URI and with other properties."""
    uri = f"sqlite:///{folder / 'catalog.db'}{uri_ending}"
    return SqlCatalog("local", uri=uri, warehouse=folder.as_uri(), **properties)


@contextmanager
def open_catalog(folder: Path) -> Iterator[SqlCatalog]:
    """Make a catalog in a folder, called `local`, with the namespace `ns`."""
    with closing(catalog_in(folder)) as catalog:
        catalog.create_namespace("ns")
        yield catalog


@contextmanager
def temporary_catalog() -> Iterator[SqlCatalog]:
    """Make a catalog in a folder of its own, for each example of a law."""
    with TemporaryDirectory() as folder, open_catalog(Path(folder)) as catalog:
        yield catalog


@pytest.fixture
def local_catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog of its own for each test."""
    with open_catalog(tmp_path) as catalog:
        yield catalog


@pytest.fixture
def shell(tmp_path: Path) -> "Shell":
    """Runs commands on `ns.t` of `local_catalog`."""
    from tests.shell import Shell

    return Shell(tmp_path)


@pytest.fixture
def sample(local_catalog: SqlCatalog, tmp_path: Path) -> "SegmentSample":
    """A segment of every blob type."""
    from tests.puffin_index.segments.segment_sample import write_sample

    return write_sample(local_catalog, tmp_path)


def create_table(catalog: SqlCatalog, name: str, data: pa.Table, row_group_rows: int, **writing: Any) -> Table:
    """Create `ns.name` with small row groups and append the data as one file, which PyArrow writes if told how."""
    table = catalog.create_table(
        f"ns.{name}", data.schema, properties={"write.parquet.row-group-limit": str(row_group_rows)}
    )
    if not writing:
        table.append(data)
        return table
    file = Path(table.location().removeprefix("file://")) / "data" / "f.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(data, file, row_group_size=row_group_rows, **writing)
    table.add_files([file.as_uri()])
    return table


def built(catalog: Catalog, name: str, definition: IndexDefinition | None = None, **kinds: Any) -> TableIndex:
    """Define the index of a table, by a definition or by what `IndexDefinition.of` takes, and build it."""
    index = TableIndex.create(catalog, name, definition or IndexDefinition.of(**kinds))
    index.build(workers=1)
    return index
