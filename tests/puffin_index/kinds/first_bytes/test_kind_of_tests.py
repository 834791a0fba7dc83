"""A kind is a folder and a line of the registry: one that only the tests know is of use everywhere."""

import json

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.commands.main import main
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import DefinitionError
from puffin_index.kinds.registry import KINDS
from tests.conftest import built, create_table
from tests.puffin_index.kinds.first_bytes.kind import MERGED, SINGLE, FirstBytesKind

ROW_GROUP_ROWS = 4
WORDS: list[list[str | None]] = [
    ["apple", "ant", None, "ape"],
    ["bee", "bear", "", "bat"],
    ["äpfel", "zoo", "zebra", "zorro"],
    ["ant", "zoo", "bee", None],
]
"""By row group."""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, FirstBytesKind.name, FirstBytesKind())


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    """Two appends of two row groups each, in two segments."""
    halves = [pa.table({"s": [word for group in groups for word in group]}) for groups in (WORDS[:2], WORDS[2:])]
    table = create_table(local_catalog, "t", halves[0], ROW_GROUP_ROWS)
    created = built(local_catalog, "ns.t", **{"first-bytes": ["s"]})
    table.append(halves[1])
    created.build(workers=1)
    return created


def kept(index: TableIndex, where: str) -> list[int]:
    """The row groups that are read, numbered through both files in the order of `WORDS`."""
    first = first_file(index)
    splits = [split for split in planner.plan(index, where).splits if split.verdict == "kept"]
    return sorted((0 if split.data_file == first else 2) + split.row_group for split in splits)


def first_file(index: TableIndex) -> str:
    snapshots = index.data_table.refresh().metadata.snapshots
    tasks = index.data_table.scan(snapshot_id=snapshots[0].snapshot_id).plan_files()
    return next(iter(tasks)).file.file_path


QUESTIONS = {
    "s = 'bug'": [3],
    "s = 'ax'": [3],
    "s = 'yak'": [],
    "s IN ('ax', 'zap')": [3],
    "s > 'c' AND s < 'y'": [],
    "s >= 'b' AND s < 'c'": [1, 3],
}
"""Zone maps alone keep row group 1 for `ax`, and row group 3 for `yak` and the range from `c` to `y`."""


def test_row_groups_without_a_first_byte_are_dropped_and_the_merged_sets_drop_the_same(index: TableIndex) -> None:
    assert {where: kept(index, where) for where in QUESTIONS} == QUESTIONS
    assert index.compact().segments == 1
    assert index.status().segments == 1
    assert {where: kept(index, where) for where in QUESTIONS} == QUESTIONS


def test_no_row_is_lost(index: TableIndex) -> None:
    words = [word for group in WORDS for word in group]
    for where, expected in (
        ("s = 'ant'", ["ant", "ant"]),
        ("s = ''", [""]),
        ("s > 'bear' AND s <= 'zoo'", [w for w in words if w is not None and "bear" < w <= "zoo"]),
        ("s IS NULL", [None, None]),
        ("NOT s = 'ant'", [w for w in words if w is not None and w != "ant"]),
    ):
        rows = planner.scan(index, where).read_all()["s"].to_pylist()
        assert sorted(map(str, rows)) == sorted(map(str, expected)), where


def test_verification_proves_the_right_and_finds_the_wrong(index: TableIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    assert index.verify(sample=None).findings == ()
    monkeypatch.setattr("tests.puffin_index.kinds.first_bytes.kind._set_of", lambda _: np.ones(256, np.bool_))
    assert {finding.what for finding in index.verify(sample=None).findings} == {"a first byte is missing"}


def test_inspection_and_status_name_the_kind(index: TableIndex) -> None:
    location = index.index_table.scan().to_arrow()["segment"][0].as_py().removeprefix("file://")
    document = json.loads(CliRunner().invoke(main, ["inspect", location, "--json"]).stdout)
    directories = [one for one in document["directories"] if one["kind"] == "first-bytes"]
    assert [(one["payloads"], one["blob_types"]) for one in directories] == [(2, [SINGLE])]
    assert [list(column.kinds) for column in index.status().columns] == [["first-bytes"]]
    index.compact()
    (location,) = set(index.index_table.refresh().scan().to_arrow()["segment"].to_pylist())
    document = json.loads(CliRunner().invoke(main, ["inspect", location.removeprefix("file://"), "--json"]).stdout)
    assert [one["blob_types"] for one in document["directories"] if one["kind"] == "first-bytes"] == [[MERGED]]


def test_definitions_are_checked_by_the_kind(local_catalog: SqlCatalog) -> None:
    create_table(local_catalog, "numbers", pa.table({"n": [1]}), ROW_GROUP_ROWS)
    with pytest.raises(DefinitionError, match="column 'n': kind first-bytes has no long columns"):
        TableIndex.create(local_catalog, "ns.numbers", IndexDefinition.of(**{"first-bytes": ["n"]}))
    with pytest.raises(DefinitionError, match="knows 'size'; known: colour"):
        IndexDefinition.of(**{"first-bytes": ["s"]}, options={"s.size": "7"})
    with pytest.raises(DefinitionError, match="unknown index kind 'last-bytes'"):
        IndexDefinition.of(**{"last-bytes": ["s"]})


def test_an_index_of_a_kind_of_another_release_does_no_harm(index: TableIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a downgrade: nothing is lost, no command ends in a traceback, and queries read what they must."""
    monkeypatch.delitem(KINDS, FirstBytesKind.name)
    before = index.index_table.refresh().scan().to_arrow()
    assert kept(index, "s = 'yak'") == [3]
    assert index.compact().segments_after == 2
    assert index.index_table.refresh().scan().to_arrow().equals(before)
    location = before["segment"][0].as_py().removeprefix("file://")
    document = json.loads(CliRunner().invoke(main, ["inspect", location, "--json"]).stdout)
    assert {one["kind"] for one in document["directories"]} == {"first-bytes", "statistics"}
    assert all("first-bytes, which this release does not know" in one.what for one in index.verify(None).findings)
    assert index.verify(None).findings
    assert index.status().data_files == 2


def test_the_kind_is_dropped_with_the_index(index: TableIndex) -> None:
    index.drop()
    with pytest.raises(Exception, match="no index"):
        TableIndex.open(index.catalog, "ns.t")
