"""The commands `verify`, `compact`, `expire` and `drop`: text, JSON, exit codes, bad input."""

import json
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import TableIndex
from tests.puffin_index.indexed_table import indexed, named_segments
from tests.shell import Shell


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    return indexed(local_catalog, 2)


def test_the_life_of_an_index_in_json(index: TableIndex, shell: Shell) -> None:
    assert shell.json("verify", "--all")["findings"] == []
    compacted = shell.json("compact", "--target-size", "64MiB")
    assert (compacted["segments_before"], compacted["segments_after"]) == (2, 1)
    dry = shell.json("expire", "--dry-run")
    assert (dry["segments"], dry["dry_run"]) == (2, True)
    assert shell.json("expire", "--older-than", "12h")["segments"] == 2
    assert shell.json("drop")["segments"] == 1
    assert not index.catalog.table_exists("ns.t__puffin_index")


def test_the_same_in_words(index: TableIndex, shell: Shell) -> None:
    segments = named_segments(index)
    verified, compacted = shell("verify"), shell("compact")
    assert "indexed data files: 2 of 2" in verified.stdout
    assert "segments: 2 became 1" in compacted.stdout
    assert verified.stderr == compacted.stderr == ""
    would = shell("expire", "--dry-run").stdout
    assert would.startswith("would drop")
    assert all(segment in would for segment in segments)
    assert shell("expire").stdout.startswith("dropped")
    assert shell("drop").stdout.startswith("dropped ns.t__puffin_index\n  segments: 1\n")
    assert not index.catalog.table_exists("ns.t__puffin_index")


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(("command", "done"), [("verify", "segment checked"), ("compact", "segment merged")])
def test_progress_is_shown_on_a_terminal(shell: Shell, command: str, done: str) -> None:
    assert done in shell.on_a_terminal(command)


def test_findings_are_listed_with_exit_code_1_and_repaired(index: TableIndex, shell: Shell) -> None:
    segment = min(named_segments(index))
    path = Path(segment.removeprefix("file://"))
    path.write_bytes(b"X" + path.read_bytes()[1:])

    found = shell("verify", "--json")

    assert found.exit_code == 1
    (finding,) = json.loads(found.stdout)["findings"]
    assert set(finding) == {"file", "blob", "offset", "what"}
    assert (finding["file"], finding["offset"]) == (segment, 0)
    assert "not a Puffin file" in shell("verify").stderr
    repaired = shell("verify", "--repair")
    assert repaired.exit_code == 0
    assert "data files indexed anew: 1" in repaired.stdout
    assert shell("verify", "--all").exit_code == 0


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        ("expire", ["--older-than", "soon"], "'soon' is not a duration"),
        ("compact", ["--target-size", "0"], "'0' is not a size"),
    ],
)
def test_bad_options_are_named(shell: Shell, command: str, arguments: list[str], said: str) -> None:
    result = shell(command, *arguments)

    assert result.exit_code == 2
    assert said in result.stderr
