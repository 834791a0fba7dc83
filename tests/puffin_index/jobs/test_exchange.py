"""Containers of Paimon's go out of an index and come in again, and wrong ones are refused."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.commands.main import main
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import BuildError
from puffin_index.formats.paimon_container import read_container
from puffin_index.segments.exchange import ExportedContainer
from puffin_index.storage.ranged import BytesReader
from tests.conftest import create_table

ROWS = 3_000
DEFINITION = IndexDefinition.of(
    bitmap=["state", "n"],
    bsi=["n"],
    bloom=["state"],
    options={"n.compression": "none", "n.layout": "postings", "state.version": "2", "state.layout": "bitmaps"},
)


def _data(shift: int) -> pa.Table:
    numbers = [(row * 7919 + shift) % 991 for row in range(ROWS)]
    states = [None if number % 13 == 5 else f"state {number % 7}" for number in numbers]
    return pa.table({"n": pa.array(numbers, pa.int32()), "state": pa.array(states)})


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    """Two data files of one row group each, and one file of two."""
    table = create_table(local_catalog, "t", _data(0), 1_000_000)
    table.append(_data(1))
    return TableIndex.create(local_catalog, "ns.t", DEFINITION)


def _paths(index: TableIndex) -> list[str]:
    return sorted(file.path for file in list_data_files(index.data_table))


def _run(index: TableIndex, command: str, *arguments: str) -> Result:
    catalog = [f"{key}={index.catalog.properties[key]}" for key in ("uri", "warehouse")]
    options = [part for pair in catalog for part in ("--catalog-property", pair)]
    return CliRunner().invoke(main, [command, "local.ns.t", *arguments, *options])


def _imported(index: TableIndex, path: str, exported: ExportedContainer) -> dict[str, tuple[str, ...]]:
    container = read_container(BytesReader.of(exported.data, "container"))
    return dict(index.import_indexes(path, container).imported)


def test_what_was_exported_is_imported_and_answers(
    local_catalog: SqlCatalog, index: TableIndex, tmp_path: Path
) -> None:
    index.build(workers=1)
    wheres = ["n = 17", "n BETWEEN 40 AND 44", "state = 'state 3'", "state IS NULL", "state = 'none'", "n > 5000"]
    before = [planner.count(index, where).rows for where in wheres]
    for number, path in enumerate(_paths(index)):
        output = tmp_path / f"{number}.index"
        result = _run(index, "export", "--data-file", Path(path).name, "--output", str(output))
        assert (result.exit_code, "state: bitmap, bloom-filter" in result.stdout, "n: bsi" in result.stdout) == (
            0,
            True,
            True,
        )
        assert "left out: bitmap of field 1: Paimon cannot read puffin-index-postings-v1" in result.stderr
        again = _run(index, "export", "--data-file", path, "--output", str(output))
        assert (again.exit_code, "exists already" in again.stderr) == (1, True)
    index.drop()

    anew = TableIndex.create(local_catalog, "ns.t", DEFINITION)
    for number, path in enumerate(_paths(anew)):
        result = _run(anew, "import", "--data-file", path, "--input", str(tmp_path / f"{number}.index"), "--json")
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        assert document["imported"] == {"n": ["bsi"], "state": ["bitmap", "bloom"]}
    assert [planner.count(anew, where).rows for where in wheres] == before
    assert anew.verify(None).findings == ()
    assert planner.plan(anew, "n = 5000 OR state = 'none'").kept == 0
    # What a build adds afterwards is the postings only, and a compaction reads what came from outside.
    assert anew.build(workers=1).files == 2
    anew.compact()
    assert anew.verify(None).findings == ()
    assert [planner.count(anew, where).rows for where in wheres] == before


def test_an_index_of_another_data_file_is_refused(index: TableIndex) -> None:
    index.build(workers=1)
    first, second = _paths(index)
    exported = index.export_indexes(first)
    with pytest.raises(BuildError, match=r"bitmap of 'state' is not an index of .*|bsi of 'n' is not an index of .*"):
        _imported(index, second, exported)
    with pytest.raises(BuildError, match=r"nothing imported for .*: bsi of n: the index has it"):
        _imported(index, first, exported)
    assert index.verify(None).findings == ()
    assert index.expire().segments == 0


def test_bad_questions_are_one_clear_sentence(index: TableIndex, tmp_path: Path, local_catalog: SqlCatalog) -> None:
    output = ("--output", str(tmp_path / "x.index"))
    path = _paths(index)[0]
    for arguments, sentence in (
        (("export", "--data-file", "nowhere.parquet", *output), "table ns.t has no data file nowhere.parquet"),
        (("export", "--data-file", path, *output), f"the index has nothing of {path}"),
        (("import", "--data-file", path, "--input", str(tmp_path / "none.index")), "none.index"),
        (("import", "--data-file", path, "--input", path.removeprefix("file://")), "not a file index container"),
    ):
        result = _run(index, *arguments)
        assert (result.exit_code, sentence in result.stderr.replace("\n", " ")) == (1, True), result.stderr
        assert "Traceback" not in result.output
    index.build(workers=1)
    result = _run(index, "export", "--data-file", path, "--row-group", "3", *output)
    assert f"{path} has no row group 3: it has 1" in result.stderr
    empty = read_container(BytesReader.of(index.export_indexes(path).data, "container"))
    other = create_table(local_catalog, "other", _data(0), 1_000)
    others = TableIndex.create(local_catalog, "ns.other", IndexDefinition.of(bitmap=["n"]))
    others.build(workers=1)
    (file,) = list_data_files(other)
    with pytest.raises(Exception, match="has 3 row groups: say which one"):
        others.export_indexes(file.path)
    with pytest.raises(Exception, match="nothing to import: bsi of n: the index definition has none; bitmap of state"):
        others.import_indexes(file.path, empty)
    several = TableIndex.create(local_catalog, "ns.other", DEFINITION)
    with pytest.raises(Exception, match="has 3 row groups: a container has no place for them"):
        several.import_indexes(file.path, empty)
