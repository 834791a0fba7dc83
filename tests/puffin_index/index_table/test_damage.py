"""An index table whose own files are gone or broken: one sentence from every command, and `drop` gets out."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import TableIndex
from puffin_index.errors import DamagedIndexError
from puffin_index.index_table.table import read_entries
from puffin_index.jobs.drop import drop_index
from tests.puffin_index.indexed_table import DEFINITION, check_entries, check_queries, indexed, named_segments
from tests.shell import Shell

COMMANDS: list[tuple[str, ...]] = [
    ("status",),
    ("verify",),
    ("build", "--engine", "local"),
    ("count", "k = 1"),
    ("explain", "k = 1"),
    ("compact",),
    ("expire",),
    ("follow",),
]


def path_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


FILES = ("metadata", "manifest list", "manifest", "data")


def files_of(index: TableIndex) -> dict[str, Path]:
    """The files of the current snapshot of an index table: one of each of `FILES`."""
    table = index.index_table
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifest = snapshot.manifests(table.io)[0].manifest_path
    data_file = next(iter(table.scan().plan_files())).file.file_path
    locations = (table.metadata_location, snapshot.manifest_list, manifest, data_file)
    return dict(zip(FILES, map(path_of, locations), strict=True))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


HARM: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "cut": cut,
    "empty": lambda path: path.write_bytes(b""),
}


def check_one_sentence(result: Result, *words: str) -> None:
    assert result.exit_code == 1, (result.stdout, result.exception)
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    # A progress bar may stand before it.
    assert [line for line in result.stderr.splitlines() if "indexing" not in line] == result.stderr.splitlines()[-1:]
    assert "index table ns.t__puffin_index" in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.one_of(5)
@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("file", FILES)
def test_commands_say_a_sentence_and_drop_works(local_catalog: SqlCatalog, shell: Shell, file: str, harm: str) -> None:
    index = indexed(local_catalog, 2)
    location = path_of(index.index_table.location())
    broken = files_of(index)[file]
    HARM[harm](broken)
    words = ("puffin-index drop", str(broken)) if harm == "gone" else ()

    for command in COMMANDS:
        if command == ("follow",) and file != "metadata":
            continue
        check_one_sentence(shell(*command), *words)
    if file == "metadata":
        check_one_sentence(shell("create", "--bsi", "k"), *words)

    shell.json("drop")
    assert not local_catalog.table_exists("ns.t__puffin_index")
    if file != "metadata" or harm == "gone":
        assert not location.exists()
    assert shell("create", "--bsi", "k").exit_code == 0
    assert shell("build", "--engine", "local").exit_code == 0
    again = TableIndex.open(local_catalog, "ns.t")
    check_entries(again)
    check_queries(again)


def test_a_location_that_is_not_there_is_told_as_well(local_catalog: SqlCatalog, shell: Shell) -> None:
    shutil.rmtree(path_of(indexed(local_catalog, 1).index_table.location()))

    check_one_sentence(shell("status"), "is missing")
    assert shell("drop").exit_code == 0
    assert shell("create", "--bsi", "k").exit_code == 0


def test_segments_that_are_gone_are_found_and_repaired(local_catalog: SqlCatalog, shell: Shell) -> None:
    index = indexed(local_catalog, 2)
    shutil.rmtree(path_of(index.index_table.location()) / "_segments")

    status = shell("status")
    assert (status.exit_code, len(status.stderr.splitlines())) == (1, 1)
    assert "puffin-index verify --repair" in status.stderr
    assert shell("verify", "--repair").exit_code == 0
    index.refresh()
    assert len(named_segments(index)) >= 1
    check_entries(index)


def test_a_damaged_index_of_old_names_its_files(local_catalog: SqlCatalog, caplog: pytest.LogCaptureFixture) -> None:
    index = indexed(local_catalog, 1)
    metadata = path_of(index.index_table.metadata_location)
    # As if the location had no id of its own: what lies there might be another table's.
    folder = metadata.parent.parent
    shared = folder.with_name("t__puffin_index")
    folder.rename(shared)
    location = index.index_table.metadata_location.replace(folder.name, shared.name)
    local_catalog.drop_table("ns.t__puffin_index")
    local_catalog.register_table("ns.t__puffin_index", location)
    path_of(location).unlink()

    with pytest.raises(DamagedIndexError):
        TableIndex.open(local_catalog, "ns.t")
    assert drop_index(local_catalog, "ns.t").segments == 0

    assert any("_segments" in str(path) for path in shared.rglob("*.puffin"))
    assert str(path_of(location)) in caplog.text


def test_an_old_snapshot_that_is_broken_stops_no_query(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 2)
    path_of(index.index_table.snapshots()[0].manifest_list).unlink()

    index.refresh()
    assert len(read_entries(index.index_table)) == 2
    check_queries(index)
    with pytest.raises(DamagedIndexError, match="is missing"):
        index.expire()
    assert TableIndex.create(local_catalog, "ns.t", DEFINITION).drop().segments == 2
