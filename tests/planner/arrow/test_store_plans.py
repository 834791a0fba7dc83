"""Plans over segments in a store: rounds of requests, not requests, are what a user waits for."""

from collections.abc import Iterator

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.arrow.plan import plan
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import DefinitionError
from puffin_index.storage.caches import clear_caches
from puffin_index.storage.parallel import PROPERTY_AT_ONCE
from puffin_index.storage.whole_files import read_tables_whole
from ssb_bench.stores.server import StoreServer, Traffic
from tests.conftest import amount
from tests.planner.arrow.test_many_segments import asked
from tests.processes import run_forked
from tests.puffin_index.indexed_table import indexed
from tests.stores import far_away, store_catalog

SEGMENTS = amount(5, 12)
DEFINITION = IndexDefinition.of(
    bitmap=["k", "b", "s"], bsi=["k"], options={f"{name}.layout": "postings" for name in ("k", "b")}
)


@pytest.fixture(scope="module")
def catalog(server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    with store_catalog(server, tmp_path_factory.mktemp("plans")) as made:
        indexed(made, SEGMENTS, DEFINITION)
        yield made


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("where", "rounds"), [("k = 77", 4), ("k = 77 AND s = 'value 7'", 5)])
def test_the_first_plan_takes_few_rounds(server: StoreServer, catalog: SqlCatalog, where: str, rounds: int) -> None:
    def first_plan() -> Traffic:
        clear_caches()
        return asked(server, TableIndex.open(catalog, "ns.t"), where)[0]

    # A busy machine may send some requests of a round so late that they look like one more.
    traffic = min((first_plan() for _ in range(3)), key=lambda one: one.rounds)

    # The manifest list of the data table and all of the index table; manifests of the data table and directories;
    # directories of keys; keys of each column.
    assert traffic.rounds <= rounds
    assert traffic.by_kind.keys() == {"GET", "RANGE"}


def test_a_prepared_look_up_takes_two_rounds(server: StoreServer, catalog: SqlCatalog) -> None:
    clear_caches()
    prepared = planner.prepare(TableIndex.open(catalog, "ns.t"), ["k"])
    rounds = []
    for key in (77, 78, 1990, 5):
        found: list[Traffic] = []
        with far_away(server, found):
            assert len(prepared.get({"k": [key]})) > 0
        rounds.append(found[0].rounds)

    # Blocks of the index, and pages of the data; before the first pages, a file's footer and its offset indexes.
    assert rounds[0] <= 4
    assert min(rounds[1:]) == 2


PARENT = """
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
import planner
from puffin_index import TableIndex

index = TableIndex.open(SqlCatalog("local", **{properties!r}), "ns.t")
source, prepared = planner.dataset(index), planner.prepare(index, ["k"])

def answers():
    found = planner.count(index, "k = 77"), planner.count(index, "s = 'value 7' AND k > 5", refresh=False)
    assert not any(one.plan.warnings for one in found), found
    rows = planner.scan(index, "k = 78").read_all(), source.to_table(filter=pc.field("k") == 79)
    keyed = [prepared.get({{"k": [key]}}) for key in (77, 78)]
    return [one.rows for one in found], [len(one) for one in (*rows, *keyed)]

expected = answers()
assert min(expected[1]) > 0, expected
"""


def test_a_process_that_was_forked_goes_on_with_what_its_parent_opened(catalog: SqlCatalog) -> None:
    run_forked(PARENT.format(properties=dict(catalog.properties)), "assert answers() == expected\n")


def test_catalogs_of_ours_get_the_metadata_of_a_table_by_one_request(server: StoreServer, catalog: SqlCatalog) -> None:
    settings = {"uri": catalog.properties["uri"], "warehouse": catalog.properties["warehouse"]}
    mine = read_tables_whole(SqlCatalog("local", **settings, **server.properties))
    server.traffic()
    index = TableIndex.open(mine, "ns.t")
    assert server.traffic().by_kind == {"GET": 2}
    index.refresh()
    assert server.traffic().by_kind == {"GET": 2}
    assert asked(server, index, "k = 77")[0].by_kind.keys() == {"RANGE"}
    mine.close()


def test_a_property_bounds_the_requests_at_one_time(server: StoreServer, catalog: SqlCatalog) -> None:
    uri, warehouse = catalog.properties["uri"], catalog.properties["warehouse"]
    settings = server.properties | {"uri": uri, "warehouse": warehouse}
    few = SqlCatalog("local", **settings, **{PROPERTY_AT_ONCE: "3"})
    bad = SqlCatalog("local", **settings, **{PROPERTY_AT_ONCE: "many"})
    try:
        clear_caches()
        index = TableIndex.open(few, "ns.t")
        asked(server, index, "k = 77")
        assert asked(server, index, "k = 77")[0].most_at_once == 3
        clear_caches()
        with pytest.raises(DefinitionError, match="requests-at-once is 'many'"):
            plan(TableIndex.open(bad, "ns.t"), "k = 77")
    finally:
        few.close()
        bad.close()
        clear_caches()
