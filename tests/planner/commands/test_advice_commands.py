"""`what-if` and `advise` as a user runs them, on tables with and without an index."""

import re
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.planner.commands.test_main import shell
from tests.planner.query_log_sample import logged_scan
from tests.shell import Shell

__all__ = ["shell"]


def test_what_if(shell: Shell) -> None:
    document = shell.json("what-if", "k = 5", "--bitmap", "k,name", "--bloom", "k", "--sample", "0")
    assert document["added"] == ["k.bitmap", "k.bloom", "name.bitmap"]
    assert document["verdict"] == {
        "text": "build",
        "reason": "it would save 6 of 8 row groups; the WHERE does not test name",
    }
    shown = shell("what-if", "k = 5", "--bsi", "k", "--sample", "4")
    assert shown.exit_code == 0
    assert "what if +k.bsi: build, because" in shown.output
    assert "measured on 4 of 8 row groups" in shown.output

    shell.json("create", "--bitmap", "k")
    shell.json("build", "--engine", "local", "--workers", "1")
    hidden = shell.json("what-if", "k = 5", "--without", "k.bitmap")
    assert hidden["left_out"] == ["k.bitmap"]
    assert hidden["verdict"] == {
        "text": "keep",
        "reason": "without it, this WHERE would read 6 row groups more than the 2 of today",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["k = 5", "--bitmap", "tags"], "only leaves can be indexed"),
        (["k = 5", "--bsi", "k", "--option", "k.fpp=1"], "knows 'fpp'"),
        (["k = 5"], "name the indexes to add"),
        (["k =", "--bitmap", "k"], "expected"),
    ],
)
def test_what_if_says_what_is_wrong(shell: Shell, arguments: list[str], message: str) -> None:
    result = shell("what-if", *arguments)
    assert result.exit_code == 1
    assert message in result.output.replace("\n", " ")


def test_advise(shell: Shell, tmp_path: Path, local_catalog: SqlCatalog) -> None:
    queries = tmp_path / "queries.sql"
    queries.write_text("SELECT * FROM ns.t WHERE k = 5;\nSELECT id FROM ns.t WHERE k = 77;\n")
    document = shell.json("advise", "--queries", str(queries), "--max-share", "300%")
    (proposal,) = [own for own in document["indexes"] if own["action"] == "create"]
    assert (proposal["column"], proposal["action"]) == ("k", "create")
    assert document["statements"] == [f"CREATE INDEX k_{proposal['kind']} ON local.ns.t USING {proposal['kind']} (k)"]
    assert local_catalog.list_tables("ns") == [("ns", "t")]

    log = tmp_path / "log"
    log.mkdir()
    (log / "2026-01-01-x.jsonl").write_text(logged_scan("local.ns.t", "k = 5", 1000))
    shown = shell("advise", "--query-log", log.as_uri(), "--max-share", "3", "--create")
    assert shown.exit_code == 0, shown.output
    assert "build it with: puffin-index build local.ns.t" in shown.output
    assert ("ns", "t__puffin_index") in local_catalog.list_tables("ns")


def test_advise_shows_progress_on_a_terminal_only(shell: Shell, tmp_path: Path) -> None:
    queries = tmp_path / "queries.sql"
    queries.write_text("SELECT * FROM ns.t WHERE k = 5")
    shown = shell.on_a_terminal("advise", "--queries", str(queries))
    assert "reading queries" in shown
    # The last state is always drawn.
    assert re.search(r"trying sets of indexes: \d+ plans", shown)
    assert shell("advise", "--queries", str(queries)).stderr == ""


def test_advise_says_what_is_wrong(shell: Shell, tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty.sql", tmp_path / "binary"
    empty.touch()
    binary.write_bytes(b"\xff\xfe\x00")
    for arguments, message, code in (
        ([], "give one of --queries and --query-log", 2),
        (["--queries", str(empty), "--query-log", str(empty)], "give one of", 2),
        (["--queries", str(empty), "--max-share", "lots"], "is no share", 2),
        (["--queries", str(tmp_path / "nowhere")], "does not exist", 2),
        (["--queries", str(empty)], "no SQL statement", 1),
        (["--queries", str(binary)], "no text in UTF-8", 1),
        (["--query-log", (tmp_path / "nowhere").as_uri()], "has no query log", 1),
    ):
        result = shell("advise", *arguments)
        assert (result.exit_code, message in " ".join(result.output.split())) == (code, True), result.output


def test_benefits_need_queries_of_the_table(shell: Shell, tmp_path: Path) -> None:
    shell.json("create", "--bitmap", "k")
    (tmp_path / "2026-01-01-x.jsonl").write_text(logged_scan("local.ns.other", "k = 5", 1000))
    for folder in (tmp_path, tmp_path / "nowhere"):
        result = shell("benefits", "--query-log", folder.as_uri())
        assert (result.exit_code, "has no query of ns.t: name the folder" in result.output) == (1, True), result.output
