"""Plans over many segments in a store: what is read first of each is asked for at once, whatever comes of it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from planner.arrow.plan import plan
from planner.report.scan_plan import ScanPlan
from puffin_index import TableIndex
from puffin_index.storage.caches import clear_caches
from puffin_index.storage.ranged import GAP_BYTES
from ssb_bench.stores.server import StoreServer, Traffic
from tests.conftest import amount
from tests.puffin_index.indexed_table import PREDICATES, indexed, named_segments
from tests.stores import far_away, store_catalog

SEGMENTS = amount(5, 24)
MANY = 16
PATIENCE = 1e6
WHERES = [*PREDICATES, "b = 1 AND b <> 2 AND k > 1900", "b IN (1, 2) AND s = 'value 3'", "k > 1990 OR b = 5"]


@pytest.fixture(scope="module")
def catalog(server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    with store_catalog(server, tmp_path_factory.mktemp("many")) as made:
        indexed(made, SEGMENTS)
        yield made


@pytest.fixture
def other(server: StoreServer, catalog: SqlCatalog) -> Iterator[SqlCatalog]:
    """The same catalog, read by PyArrow's files, which ask range by range."""
    uri, warehouse = catalog.properties["uri"], catalog.properties["warehouse"]
    made = SqlCatalog("local", uri=uri, warehouse=warehouse, **server.properties | {"s3.resolve-region": "true"})
    yield made
    made.close()


def planned(index: TableIndex, where: str, *, strict: bool = True) -> ScanPlan:
    return plan(index, where, strict=strict, refresh=False, planning_milliseconds=PATIENCE)


def asked(server: StoreServer, index: TableIndex, where: str) -> tuple[Traffic, ScanPlan]:
    found: list[Traffic] = []
    with far_away(server, found):
        made = planned(index, where)
    return found[0], made


def verdicts(made: ScanPlan) -> tuple[object, ...]:
    return made.reasons.tolist(), made.matches.tolist()


def check_reads(made: ScanPlan, alone: ScanPlan) -> None:
    """The verdicts of a plan that reads range by range; each request saved may cost the bytes of a gap."""
    assert verdicts(made) == verdicts(alone)
    saved = alone.index_reads - made.index_reads
    # Near ranges of several payloads are joined where there are many.
    assert saved == 0 or (saved > 0 and SEGMENTS >= MANY)
    assert 0 <= made.index_bytes_read - alone.index_bytes_read <= saved * GAP_BYTES


@pytest.mark.one_of(9)
@pytest.mark.parametrize("where", WHERES)
def test_plans_ask_for_what_they_read_range_by_range(catalog: SqlCatalog, other: SqlCatalog, where: str) -> None:
    clear_caches()
    mine = TableIndex.open(catalog, "ns.t")
    first, again = planned(mine, where), planned(mine, where)
    clear_caches()
    theirs = TableIndex.open(other, "ns.t")
    check_reads(first, planned(theirs, where))
    check_reads(again, planned(theirs, where))
    assert not first.warnings


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("where", "rounds"),
    [
        ("k = 77", 1),
        ("s = 'value 7'", 2),
        ("k = 77 AND b = 3", 2),
        ("k < 60 AND b = 3", 3),
        ("b = 1 AND b <> 2 AND k > 1900", 3),
    ],
)
def test_a_round_a_column_for_any_segments(server: StoreServer, catalog: SqlCatalog, where: str, rounds: int) -> None:
    def warm_plan() -> tuple[Traffic, ScanPlan]:
        clear_caches()
        index = TableIndex.open(catalog, "ns.t")
        planned(index, where)
        return asked(server, index, where)

    # A busy machine may send some requests of a round so late that they look like one more.
    traffic, made = min((warm_plan() for _ in range(3)), key=lambda one: (one[0].rounds, -one[0].most_at_once))
    # Among the rows of the others, a wide test of one of these columns comes last.
    assert 0 < traffic.rounds <= rounds
    assert traffic.most_at_once >= SEGMENTS
    assert (traffic.requests, traffic.bytes_in) == (made.index_reads, made.index_bytes_read)


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_lost_segment_keeps_its_row_groups_alone(catalog: SqlCatalog, other: SqlCatalog, *, is_warm: bool) -> None:
    """Which questions need the segment depends on its bounds, so range by range says which plans must warn."""
    mine, theirs = TableIndex.open(catalog, "ns.t"), TableIndex.open(other, "ns.t")
    gone = sorted(named_segments(mine))[SEGMENTS // 2]
    with mine.index_table.io.new_input(gone).open() as stream:
        content = stream.read()

    def without_it(index: TableIndex, where: str) -> tuple[object, object, bool]:
        clear_caches()
        _restore(index, gone, content)
        if is_warm:
            planned(index, where)
        index.index_table.io.delete(gone)
        made = planned(index, where, strict=False)
        return made.reasons.tolist(), made.matches.tolist(), any(gone in warning for warning in made.warnings)

    warned, asked_wheres = 0, WHERES[: amount(3, len(WHERES))]
    try:
        for where in asked_wheres:
            found = without_it(mine, where)
            assert found == without_it(theirs, where), where
            warned += found[2]
    finally:
        _restore(mine, gone, content)
        clear_caches()
    assert warned >= len(asked_wheres) // 2


def _restore(index: TableIndex, location: str, content: bytes) -> None:
    with index.index_table.io.new_output(location).create(overwrite=True) as stream:
        stream.write(content)


def test_plans_side_by_side_do_not_take_each_others_bytes(server: StoreServer, catalog: SqlCatalog) -> None:
    clear_caches()
    index = TableIndex.open(catalog, "ns.t")
    expected = planned(index, "k = 77")
    found: list[Traffic] = []
    with far_away(server, found), ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: planned(index, "k = 77"), range(3)))
    assert [verdicts(one) for one in made] == [verdicts(expected)] * 3
    assert found[0].rounds == 1
    assert found[0].requests == sum(one.index_reads for one in made)
