"""The commands that need no Spark, and the sentences for what is missing."""

import shutil
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ssb_bench.commands.main import STUDIES, cli
from ssb_bench.data.layout import BenchError, Layout
from ssb_bench.spark_runs.session import require_java

RECORDED = Path(__file__).parents[1] / "run.json"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize("command", ["generate", "load", "build", "report", "demo", *STUDIES])
def test_each_command_has_help(command: str) -> None:
    result = invoke(command, "--help")

    assert result.exit_code == 0
    assert "--sf" in result.output
    assert "--data" in result.output


def test_a_study_is_a_module_and_its_parameters_are_options() -> None:
    names = {"run", "pages", "text", "systems", "clustered", "scale", "writes", "doors", "store", "fresh"}
    assert {*STUDIES} == names
    store, run = (" ".join(invoke(study, "--help").output.split()) for study in ("store", "run"))

    assert "Work on lineorder in an object store" in store
    assert "--spark / --no-spark" in store
    assert (
        "--milliseconds FLOAT RANGE From a request to its answer. May be given again. [default: 10.0, 30.0, 100.0"
        in store
    )
    assert "--workload NAME" in run
    assert "--repeats INTEGER RANGE" in run
    for option, wrong in (("--workload", "nothing"), ("--repeats", "0"), ("--query", "q8")):
        refused = invoke("run", option, wrong)
        assert (refused.exit_code, wrong in refused.output) == (2, True)


def test_generate_prints_the_rows_of_each_table(layout: Layout) -> None:
    result = invoke("generate", "--sf", "0.01", "--data", str(layout.root.parent))

    assert result.exit_code == 0
    assert "lineorder: 60,175 rows" in result.output
    assert "supplier: 20 rows" in result.output


def test_report_prints_a_run_and_draws_it(tmp_path: Path) -> None:
    runs = tmp_path / "sf1" / "all"
    runs.mkdir(parents=True)
    shutil.copy(RECORDED, runs / "run.json")
    result = invoke("report", "--data", str(tmp_path))

    assert result.exit_code == 0
    assert "geometric mean" in result.output
    assert (runs / "run.png").exists()
    assert "<svg" in (runs / "run.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generate", "--sf", "0"], "scale factor 0 is outside"),
        (["load"], "run `ssb-bench generate --sf 1"),
        (["build"], "run `ssb-bench load --sf 1"),
        (["run"], "run `ssb-bench load --sf 1"),
        (["doors"], "run `ssb-bench load --sf 1"),
        (["report"], "run `ssb-bench run` first"),
    ],
)
def test_what_is_missing_is_a_sentence(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["ssb-bench", *words, "--data", str(tmp_path)])

    with pytest.raises(SystemExit) as exit_info:
        cli(prog_name="ssb-bench")
    error = capsys.readouterr().err
    assert exit_info.value.code == 1
    assert said in error
    assert "Traceback" not in error


def fake_java(home: Path, said: str) -> None:
    """A Java home whose `java` says only its version, for what cannot be had on one machine: other versions."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)


def test_java_is_to_be_17_or_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    fake_java(tmp_path, 'openjdk version "21.0.1" 2023-10-17')
    assert require_java() == 21

    fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(BenchError, match="is Java 11: install Java 17"):
        require_java()


def test_no_java_is_said_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchError, match="which is missing: install Java 17"):
        require_java()

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BenchError, match="does not start"):
        require_java()
