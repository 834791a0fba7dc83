"""The command line as a user runs it, on a real SQLite catalog, with the local engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog.sql import SqlCatalog

from planner.commands.main import main
from puffin_index import IndexDefinition
from puffin_index.errors import DefinitionError
from puffin_index.storage.caches import clear_caches
from tests.conftest import create_table
from tests.shell import Shell, catalog_options

ROWS = 4_000


@pytest.fixture
def shell(local_catalog: SqlCatalog, tmp_path: Path) -> Shell:
    """Runs commands on `ns.t`, which has 8 row groups in 2 files."""
    data = pa.table(
        {
            "id": pa.array(range(ROWS // 2), pa.int64()),
            "k": pa.array([(i * 7919) % ROWS for i in range(ROWS // 2)], pa.int32()),
            "name": pa.array([f"name-{i % 100}" for i in range(ROWS // 2)], pa.string()),
            "tags": pa.array([[i] for i in range(ROWS // 2)], pa.list_(pa.int64())),
        }
    )
    create_table(local_catalog, "t", data, 500).append(data)
    return Shell(tmp_path)


def test_create_build_status_explain(shell: Shell) -> None:
    options = "--bsi k --bitmap name --bloom name --option name.fpp=0.02 --option name.layout=bitmaps"
    assert shell.json("create", *options.split())["index_table"] == "ns.t__puffin_index"

    before = shell.json("status")
    assert (before["row_groups"], before["indexed_row_groups"], before["segments"]) == (8, 0, 0)

    built = shell.json("build", "--engine", "local", "--workers", "1")
    assert (built["files"], built["row_groups"], built["rows"]) == (2, 8, ROWS)

    status = shell.json("status")
    assert set(status) == {
        "table",
        "snapshot_id",
        "data_files",
        "indexed_data_files",
        "row_groups",
        "indexed_row_groups",
        "segments",
        "index_bytes",
        "data_bytes",
        "columns",
        "unindexed_bytes",
        "snapshots_behind",
        "live_index_bytes",
        "outdated",
        "left_out",
        "unusable",
        "total_index_bytes",
        "index_table",
    }
    assert (before["snapshots_behind"], before["unindexed_bytes"]) == (2, before["data_bytes"])
    assert (status["snapshots_behind"], status["unindexed_bytes"]) == (0, 0)
    assert (status["indexed_data_files"], status["indexed_row_groups"]) == (2, 8)
    columns = status["columns"]
    assert [(c["name"], sorted(c["kind_bytes"])) for c in columns] == [("k", ["bsi"]), ("name", ["bitmap", "bloom"])]
    assert all(column["index_bytes"] == sum(column["kind_bytes"].values()) > 0 for column in columns)
    assert all(column["data_bytes"] > 0 for column in columns)

    explained = shell.json("explain", "k = 3919 AND name = 'name-1'")
    assert (explained["row_groups"], explained["kept"], explained["dropped"]) == (8, 2, 6)
    assert [split["rows"] for split in explained["splits"] if split["verdict"] == "kept"] == [1, 1]

    for command in (("status",), ("explain", "k = 3919"), ("build", "--engine", "local")):
        assert shell(*command).exit_code == 0


@pytest.mark.parametrize(
    "command", ["build", "status", "explain k=1", "count k=1", "verify", "compact", "expire", "follow", "drop"]
)
def test_a_table_without_an_index_is_one_clear_sentence(shell: Shell, command: str) -> None:
    advice = "nothing to drop" if command == "drop" else "run `puffin-index create` first"

    _assert_refused(shell(*command.split()), 1, f"there is no index table ns.t__puffin_index: {advice}")


_ALONE = "--snapshot-id goes with neither --ref nor --watch"
_NO_FILES = "Iceberg cannot choose data files by this predicate"


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        ("create local.ns.missing --bsi k", 1, "there is no table ns.missing in catalog 'local'"),
        ("create local.nowhere.t --bsi k", 1, "there is no table nowhere.t in catalog 'local'"),
        ("create local.ns.t --bsi nope", 1, "there is no column 'nope'; the table has: id, k, name, tags"),
        ("create local.ns.t --bsi tag", 1, "did you mean 'tags'?"),
        ("create local.ns.t --bsi tags", 1, "column 'tags' is a list<long>: only leaves can be indexed"),
        ("create local.ns.t", 1, "an index definition needs at least one column"),
        ("create local.ns.t --bloom k --option k.size=3", 1, "no index of column 'k' knows 'size'"),
        ("create local.ns.t --bloom k --option k.item=3", 1, "did you mean 'items'?"),
        ("create t --bsi k", 1, "'t' is not a table name: it should read catalog.namespace.table"),
        ("creat local.ns.t", 2, "Did you mean 'create'?"),
        ("create local.ns.t --bitmpa k", 2, "Did you mean one of: '--bitmap'"),
        ("status local.ns.tt", 1, "no table ns.tt in catalog 'local'; did you mean 'ns.t'?"),
        ("status local.nss.t", 1, "no table nss.t in catalog 'local'; did you mean 'ns.t'?"),
        ("explain local.ns.t nam='x'", 1, "no column 'nam'; the table has: id, k, name, tags; did you mean 'name'?"),
        ("explain local.ns.t AA=5", 1, "there is no column 'AA'; the table has: id, k, name, tags"),
        ("count local.ns.t nope=1", 1, "there is no column 'nope'"),
        (
            "count local.ns.t name=AA",
            1,
            "no column 'AA'; the table has: id, k, name, tags; did you mean the text 'AA'?",
        ),
        ("aggregate local.ns.t median(k)", 1, "there is no aggregate 'median' here"),
        ("aggregate local.ns.t count(*) --where k<3 --session-zone Europe/Nowhere", 1, "Europe/Nowhere"),
        ("build local.ns.t --engine local --where nope=1", 1, "there is no column 'nope'"),
        ("build local.ns.t --engine local --where upper(name)='A'", 1, _NO_FILES),
        ("build local.ns.t --engine local --where k=)", 1, "expected"),
        ("build local.ns.t --engine local --ref nowhere", 1, "table ns.t has no branch or tag 'nowhere'"),
        ("build local.ns.t --engine local --snapshot-id 17", 1, "table ns.t has no snapshot 17"),
        ("build local.ns.t --engine local --snapshot-id 17 --ref main", 2, _ALONE),
        ("build local.ns.t --engine local --snapshot-id 17 --watch", 2, _ALONE),
        ("build local.ns.t --engine local --watch --interval 0", 2, "--interval"),
    ],
)
def test_bad_input_is_one_clear_sentence(shell: Shell, tmp_path: Path, command: str, code: int, sentence: str) -> None:
    shell("create", "--bsi", "k")

    result = CliRunner().invoke(main, [*command.split(), *catalog_options(tmp_path)])

    _assert_refused(result, code, sentence)


def _assert_refused(result: Result, code: int, sentence: str) -> None:
    assert result.exit_code == code
    assert sentence in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_repeated_options_unite_and_nothing_is_lost_silently(shell: Shell) -> None:
    shell.json("create", "--bitmap", "name", "--bitmap", "k,name", "--bloom", "name", "--option", "name.fpp=0.02")

    again = shell("create", "--bitmap", "name", "--bloom", "name")
    assert again.exit_code == 1
    said = again.stderr.replace("\n", " ")
    assert (
        "would take away: bitmap of k; the options of bloom of name (fpp=0.02; now no options). --replace does it"
        in said
    )
    assert _kinds(shell.json("add", "--bsi", "k")) == {"k": ["bitmap", "bsi"], "name": ["bitmap", "bloom"]}
    assert _kinds(shell.json("remove", "--bitmap", "k,name")) == {"k": ["bsi"], "name": ["bloom"]}

    missing = shell("remove", "--bitmap", "k")
    assert "column 'k' has no bitmap to remove; the definition has k: bsi; name: bloom" in missing.stderr
    everything = shell("remove", "--bsi", "k", "--bloom", "name")
    assert "nothing of the definition would be left: `puffin-index drop`" in everything.stderr

    assert _kinds(shell.json("create", "--bsi", "k", "--replace")) == {"k": ["bsi"]}
    assert shell("create", "--bsi", "k", "--bloom", "k").exit_code == 0


def _kinds(document: dict[str, Any]) -> dict[str, list[str]]:
    return {column["name"]: column["kinds"] for column in document["columns"]}


def test_one_text_is_no_list_of_columns_and_an_unknown_kind_asks_for_the_nearest() -> None:
    with pytest.raises(DefinitionError, match=r"bitmap='name' is one text: give a list of columns, bitmap=\['name'\]"):
        IndexDefinition.of(bitmap="name")
    with pytest.raises(DefinitionError, match=r"unknown index kind 'bitmaps'; known: .*; did you mean 'bitmap'\?"):
        IndexDefinition.of(bitmaps=["k"])


def test_a_where_that_does_not_parse_shows_a_caret(shell: Shell) -> None:
    shell("create", "--bsi", "k")

    result = shell("explain", "k = 1 AND name BETWEEN 'a' 'b'")

    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[1].strip() == "k = 1 AND name BETWEEN 'a' 'b'"
    assert lines[2].strip() == "^"


def test_what_a_function_says_of_a_column_is_shown(shell: Shell) -> None:
    shell("create", "--bsi", "k")
    shell("build", "--engine", "local", "--workers", "1")

    result = shell("explain", "trim(name) = 'name-1' AND length(name) < 9")

    assert result.exit_code == 0, result.output
    assert "implied by function: trim(name) = 'name-1': not used, the column has no index" in result.stdout
    assert "implied by function: length(name) < 9: not used, the column has no index" in result.stdout

    (implied,) = shell.json("explain", "trim(name) = 'name-1'")["implied"]
    assert (implied["source"], implied["dropped"], implied["bytes_read"]) == ("function", None, 0)


@pytest.mark.parametrize(
    ("where", "text", "reason"),
    [
        ("k = 3 AND reverse(name) = 'x'", "reverse(name) = 'x'", "the planner does not evaluate reverse(...) here"),
        ("k + 1 = 5", "k + 1 = 5", "the planner does not evaluate arithmetic, casts, CASE and the clock"),
        ("k = id OR k < 0", "k = id", "a column is compared with a column, and an index knows one column"),
        (
            "k = '5'",
            "k = '5'",
            "the literal is of another kind than the column, a int: Spark converts one of them first",
        ),
        ("length(k) = 2", "length(k) = 2", "Spark would convert k first, or takes the pattern otherwise"),
        ("tags[0] = 5", "tags[0] = 5", "no index can be of a list<long>"),
        ("\"name\" = 'name-1'", '"name"', "double quotes make a text, as in Spark; the column is name or `name`"),
    ],
)
def test_what_cannot_be_used_is_named_with_the_reason(shell: Shell, where: str, text: str, reason: str) -> None:
    shell("create", "--bsi", "k")

    assert shell.json("explain", where)["unused"] == [{"text": text, "reason": reason}]
    assert f"not used: {text}: {reason}" in shell("explain", where).stdout


def test_what_is_used_is_not_named(shell: Shell) -> None:
    shell("create", "--bsi", "k", "--bitmap", "name")
    shell("build", "--engine", "local", "--workers", "1")

    for where in ("k = 3 AND name LIKE '%1'", "k BETWEEN 1 AND 5 OR name IS NULL", "upper(name) = 'A'", 'name = "x"'):
        assert shell.json("explain", where)["unused"] == [], where
        assert shell.json("count", where)["unused"] == []


def test_a_catalog_that_is_not_there_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"

    result = CliRunner().invoke(main, ["status", "lost.ns.t", "--catalog-property", f"uri=sqlite:///{missing}"])

    assert result.exit_code == 1
    assert "catalog 'lost' is not there" in result.stderr
    assert not missing.exists()


def test_a_catalog_that_is_not_configured_says_how(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))

    result = CliRunner().invoke(main, ["status", "unheard.ns.t"])

    assert result.exit_code == 1
    assert "catalog 'unheard' is not configured" in result.stderr


def test_a_build_of_a_part_says_what_is_left(shell: Shell) -> None:
    shell("create", "--bsi", "k")

    part = shell.json("build", "--engine", "local", "--max-files", "1")
    none = shell.json("build", "--engine", "local", "--where", "id > 100000 AND name = 'x'")
    rest = shell("build", "--engine", "local", "--where", "id < 10 OR id IN (1999)", "--workers", "1")

    assert (part["files"], part["files_left"]) == (1, 1)
    assert none["files"] == 0
    assert "data files: 1\n" in rest.stdout


def test_status_says_how_far_behind_and_what_properties_it_cannot_use(shell: Shell, local_catalog: SqlCatalog) -> None:
    shell("create", "--bsi", "k")
    with local_catalog.load_table("ns.t").transaction() as transaction:
        transaction.set_properties({"file-index.bitmap.columns": "gone"})

    result = shell("status")

    assert "2 snapshots" in result.stdout
    assert "warning: table property file-index.bitmap.columns: there is no column 'gone'" in result.stderr
    assert "there is no column 'gone'" in shell.json("status")["unusable"][0]


def test_count_says_how_many_rows_match_and_what_was_read(shell: Shell) -> None:
    shell.json("create", "--bsi", "k")
    shell.json("build", "--engine", "local")

    indexed = shell.json("count", "k < 20")
    read = shell.json("count", "name = 'name-7'")

    assert (indexed["rows"], indexed["row_groups"], indexed["row_groups_read"]) == (20, 8, 0)
    assert (read["rows"], read["row_groups_read"]) == (40, 8)
    assert shell.json("count")["rows"] == ROWS
    counted = shell("count", "k < 20").output
    assert counted.startswith("20 rows\n")
    assert "row groups read: 0 of 8" in counted


def test_aggregate_prints_a_table_and_says_what_was_read(shell: Shell) -> None:
    shell.json("create", "--bsi", "k", "--bitmap", "name")
    shell.json("build", "--engine", "local")

    found = shell.json("aggregate", "count(*), sum(k) AS total", "--where", "k < 20", "--group-by", "name")
    shown = shell("aggregate", "min(name), max(k)", "--where", "k < 3")

    assert found["columns"] == ["name", "count(*)", "total"]
    ids = [i for i in range(ROWS // 2) if (i * 7919) % ROWS < 20]
    totals = {f"name-{i % 100}": [0, 0] for i in ids}
    for i in ids:
        totals[f"name-{i % 100}"][0] += 2
        totals[f"name-{i % 100}"][1] += 2 * ((i * 7919) % ROWS)
    assert found["rows"] == [[name, *totals[name]] for name in sorted(totals)]
    assert (found["row_groups"], found["row_groups_read"], found["warnings"]) == (8, 0, [])
    assert "max(k)" in shown.output
    assert "row groups read: 0 of 8" in shown.output
    assert found["unused"] == []


def _replace_by_a_folder(segment: Path) -> None:
    segment.unlink()
    segment.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        lambda segment: segment.write_bytes(b"\0" * segment.stat().st_size),
        lambda segment: segment.write_bytes(segment.read_bytes()[:100]),
        Path.unlink,
        _replace_by_a_folder,
    ],
    ids=["zeros", "cut", "gone", "folder"],
)
def test_a_damaged_segment_is_named_in_one_line(shell: Shell, tmp_path: Path, damage: Callable[[Path], object]) -> None:
    shell("create", "--bsi", "k,id", "--bitmap", "k,name", "--bloom", "name,id")
    shell("build", "--engine", "local", "--workers", "1")
    (segment,) = tmp_path.rglob("_segments/*.puffin")
    damage(segment)
    clear_caches()

    explained = shell("explain", "k = 3 AND name = 'name-1' AND id < 5")
    verified = shell("verify")

    assert (explained.exit_code, verified.exit_code) == (0, 1)
    for said in (explained.stderr, verified.stderr):
        assert len(said.splitlines()) == 1, said
        assert said.count(segment.name) == 1, said
        assert "byte 0: :" not in said
        assert ": :" not in said
        assert "::" not in said


def test_explain_counts_the_reasons_and_lists_row_groups_if_asked(shell: Shell) -> None:
    shell("create", "--bsi", "k,id")
    shell("build", "--engine", "local", "--workers", "1")

    lines = shell("explain", "id >= 0 AND k >= 5").stdout.splitlines()
    listed = shell("explain", "id >= 0 AND k >= 5", "--all").stdout.splitlines()

    assert "kept" in " ".join(lines[2:5]), lines
    assert not [line for line in lines if line.startswith("kept ")]
    assert len([line for line in listed if line.startswith("kept ")]) == 8
