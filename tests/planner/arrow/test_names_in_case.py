"""Columns whose names differ in case only: what is spelled as in the table is that column, everywhere without Spark."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

import planner
from puffin_index import BuildScope, IndexDefinition, TableIndex
from puffin_index.errors import DefinitionError, NotFoundError
from tests.conftest import built, create_table
from tests.shell import Shell

NAMES = ("Id", "ID", "id")
ROWS = 60
DATA = pa.table(
    {
        **{name: pa.array([(i * 7 + shift) % ROWS for i in range(ROWS)]) for shift, name in enumerate(NAMES)},
        "Word": [f"w{i % 5}" for i in range(ROWS)],
        "S": [{"X": i, "x": -i} for i in range(ROWS)],
    }
)
WHICH = "column 'iD' may be Id or ID or id: write it as the table does"


@pytest.fixture
def table(local_catalog: SqlCatalog) -> Table:
    return create_table(local_catalog, "t", DATA, 6)


@pytest.fixture
def index(local_catalog: SqlCatalog, table: Table) -> TableIndex:
    assert table.name() == ("ns", "t")
    kinds = {"bitmap": NAMES, "bsi": [*NAMES, "S.X", "S.x"], "bloom": ["word"]}
    return built(local_catalog, "ns.t", **kinds, options={"ID.layout": "postings"})


def test_a_definition_has_the_columns_that_it_spells(index: TableIndex) -> None:
    assert [column.name for column in index.columns] == [*NAMES, "Word", "S.X", "S.x"]
    assert [dict(column.kinds["bitmap"]) for column in index.columns[:3]] == [{}, {"layout": "postings"}, {}]
    index.remove_kinds(IndexDefinition.of(bsi=["id"]))
    assert [sorted(column.kinds) for column in index.columns[:3]] == [["bitmap", "bsi"], ["bitmap", "bsi"], ["bitmap"]]
    for names, sentence in ((["iD"], WHICH), (["word", "Word"], "columns are named twice: Word, Word")):
        with pytest.raises(DefinitionError, match=sentence):
            index.add_kinds(IndexDefinition.of(bloom=names))
    assert index.names[0].name == "Id_bitmap"


@pytest.mark.parametrize("name", NAMES)
def test_a_query_takes_the_columns_that_it_spells(index: TableIndex, name: str) -> None:
    where = f"{name} = 13 AND word LIKE 'w%'"
    expected = DATA.filter(pc.field(name) == 13)
    assert planner.count(index, where).rows == 1
    assert planner.plan(index, where, strict=True).kept == 1
    assert planner.scan(index, where).read_all().to_pylist() == expected.to_pylist()
    columns = [name, "WORD", "S.x"]
    found = planner.scan(index, where, columns).read_all()
    assert found.column_names == [name, "Word", "S"]
    assert found[name].to_pylist() == [13]
    assert planner.scan(index, None, ["S.x", *NAMES[::-1], "S.X"], limit=2).read_all().column_names == [
        "S",
        *NAMES[::-1],
    ]
    assert planner.scan(index, None, [name], order_by=name, limit=3).read_all()[name].to_pylist() == [0, 1, 2]
    assert planner.scan(index, None, keys={name: [13]}).read_all().to_pylist() == expected.to_pylist()
    assert (
        planner.get(index, {name: [13]}, ["Word", *NAMES]).select([*NAMES]).to_pylist()
        == expected.select(NAMES).to_pylist()
    )
    assert planner.locate(index, {name: [13]}).num_rows == 1
    assert planner.dataset(index).to_table(filter=pc.field(name) == 13, columns=[name])[name].to_pylist() == [13]
    found = planner.aggregate(index, where, [f"max({one})" for one in NAMES], name)
    assert found.select([name]).to_pylist() == [{name: 13}]
    assert [found[f"max({one})"].to_pylist() for one in NAMES] == [expected[one].to_pylist() for one in NAMES]


def test_a_name_that_may_be_several_is_refused(index: TableIndex) -> None:
    for ask in (
        lambda: planner.count(index, "iD = 13"),
        lambda: planner.scan(index, columns=["iD"]),
        lambda: planner.get(index, {"iD": [13]}),
        lambda: planner.locate(index, {"iD": [13]}),
        lambda: planner.aggregate(index, None, "max(iD)"),
        lambda: planner.aggregate(index, None, "count(*)", "iD"),
        lambda: planner.scan(index, None, order_by="iD", limit=1),
    ):
        with pytest.raises(NotFoundError, match=WHICH):
            ask()


def test_a_build_is_of_the_files_that_a_predicate_spells(local_catalog: SqlCatalog, table: Table) -> None:
    table.append(DATA.set_column(2, "id", pa.array(range(100, 100 + ROWS))))
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["Id"]))
    assert index.build(workers=1, scope=BuildScope(row_filter=EqualTo(term="ID", value=300))).files == 0
    assert index.build(workers=1, scope=BuildScope(row_filter=EqualTo(term="id", value=130))).files == 1


def test_properties_commands_and_advice_spell_columns(local_catalog: SqlCatalog, table: Table, tmp_path: Path) -> None:
    properties = {"file-index.bitmap.columns": "id,Id,iD", "file-index.bitmap.id.layout": "bitmaps"}
    table.transaction().set_properties(properties).commit_transaction()
    shell = Shell(tmp_path)
    shell.json("build", "--engine", "local", "--workers", "1", "--where", "ID >= 0")
    index = TableIndex.open(local_catalog, "ns.t")
    assert {column.name: dict(column.kinds["bitmap"]) for column in index.columns} == {
        "Id": {},
        "id": {"layout": "bitmaps"},
    }
    assert index.warnings == (f"table property file-index.bitmap.columns: {WHICH}",)
    assert shell.json("count", "ID = 13")["rows"] == 1

    answer = planner.what_if(index, "ID = 13", {"bsi": ["ID"]}, without=["id.bitmap"])
    assert (answer.added, answer.left_out) == (("ID.bsi",), ("id.bitmap",))
    with pytest.raises(DefinitionError, match=r"'ID.bitmap' is no index of the table"):
        planner.what_if(index, "ID = 13", without=["ID.bitmap"])
    advice = planner.advise(
        index, [f"SELECT ID FROM ns.t WHERE ID = {i}" for i in range(9)] + ["SELECT * FROM ns.t WHERE iD = 1"]
    )
    assert {one.column for one in advice.indexes if one.action == "create"} == {"ID"}
    assert f"WHERE `iD` = 1: {WHICH}" in advice.warnings
