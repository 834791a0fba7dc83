"""The wheel, tried from another directory in an environment without PySpark and the benchmark's packages."""

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from planner.spark.build_jar import installed_release
from tests.conftest import amount
from tests.shell import catalog_options
from tests.wheel_environment import ROOT, build, build_wheel, make_environment, run

_RELEASE = installed_release()
_JAR = f"puffin-index-spark-{_RELEASE}.jar"
_LEFT_OUT = ("pyspark", "py4j", "duckdb", "matplotlib", "tpchgen")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the wheel, without the packages of extras."""
    return make_environment(tmp_path_factory.mktemp("environment") / "venv", wheel, _LEFT_OUT)


def test_the_wheel_has_all_that_is_not_python(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "puffin_index", "planner", "ssb_bench"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(tracked.stdout.split()) <= names
    assert {"puffin_index/py.typed", "planner/py.typed", f"planner/spark/jars/{_JAR}"} <= names
    (license_file,) = (name for name in names if name.endswith("/licenses/LICENSE"))
    assert b"Apache License" in zipfile.ZipFile(wheel).read(license_file)
    metadata = zipfile.ZipFile(wheel).read(license_file.replace("licenses/LICENSE", "METADATA")).decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Typing :: Typed" in metadata
    assert "Project-URL: Puffin specification, https://iceberg.apache.org/puffin-spec/" in metadata


def test_a_plain_install_runs_and_says_its_version(python: Path) -> None:
    version = run(python, "-c", "import puffin_index; print(puffin_index.__version__, puffin_index.__file__)").stdout
    number, file = version.split()
    assert Path(file).is_relative_to(python.parents[1])
    for command in ((python.parent / "puffin-index",), (python, "-m", "puffin_index")):
        assert run(*command, "--version").stdout.endswith(f"version {number}\n")
        assert f"{_JAR}\n" in run(*command, "spark-conf", "--release", _RELEASE).stdout
        shown = run(*command, "--help")
        assert (shown.returncode, "explain" in shown.stdout) == (0, True), shown.stderr


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("ssb-bench", "--help"), "error: {} is not installed: install puffin-index[bench]"),
        (
            ("python", "-c", "import planner; planner.enable(None)"),
            "pyspark is not installed: install puffin-index[spark]",
        ),
    ],
)
def test_what_is_missing_is_named_with_what_to_install(python: Path, command: tuple[str, ...], sentence: str) -> None:
    done = run(python.parent / command[0], *command[1:])
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert any(sentence.format(package) in last for package in ("pyspark", "py4j", "duckdb", "matplotlib")), done.stderr


# The notebook of other engines needs these engines; tests/test_examples.py runs it.
@pytest.mark.parametrize(
    "path",
    [path for path in sorted((ROOT / "examples").glob("*.ipynb")) if path.name != "other-engines.ipynb"],
    ids=lambda path: path.name,
)
def test_a_plain_install_runs_the_notebooks(python: Path, tmp_path: Path, path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    blocks = [("python", "".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"]

    done = run(python, ROOT / "tests" / "run_blocks.py", cwd=tmp_path, entered=json.dumps(blocks))

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(amount(0, 1) == 0, reason="it downloads 500 MB: make nightly")
def test_an_install_from_a_clone_brings_what_it_needs(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"

    installed = run(python, "-m", "pip", "install", "--quiet", f"{ROOT}[spark]")

    assert installed.returncode == 0, installed.stderr
    assert run(python, "-c", "import pyspark, planner; planner.enable").returncode == 0


_TABLE_WITH_INDEX = """
from pathlib import Path
import planner, pyarrow
from pyiceberg.catalog.sql import SqlCatalog
from puffin_index import IndexDefinition, TableIndex

catalog = SqlCatalog("local", uri=f"sqlite:///{Path('catalog.db').absolute()}", warehouse=Path.cwd().as_uri())
catalog.create_namespace("ns")
rows = pyarrow.table({"k": [n * 7919 % 10_000 for n in range(10_000)]})
table = catalog.create_table("ns.t", rows.schema, properties={"write.parquet.row-group-limit": "1000"})
table.append(rows)
index = TableIndex.create(catalog, "ns.t", IndexDefinition.of(bitmap=["k"], bsi=["k"], bloom=["k"]))
index.build()
print(planner.plan(index, "k = 4711").kept, planner.scan(index, "k = 4711", ["k"]).read_all().to_pydict())
"""


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_each_python_installs_the_files_and_makes_an_index(target: str, version: str, tmp_path: Path) -> None:
    """The packages that they need are downloaded, and so is the Python where there is none."""
    uv, environment = (sys.executable, "-m", "uv"), tmp_path / "environment"
    if run(*uv, "venv", "--python", version, environment).returncode:
        pytest.skip(f"there is no Python {version}")
    python = environment / "bin" / "python"
    installed = run(*uv, "pip", "install", "--python", python, build(tmp_path / "dist", target))
    assert installed.returncode == 0, installed.stderr

    made = run(python, "-c", _TABLE_WITH_INDEX, cwd=tmp_path)
    assert (made.stdout, made.returncode) == ("1 {'k': [4711]}\n", 0), made.stderr
    found = run(python.with_name("puffin-index"), "doctor", "local.ns.t", *catalog_options(tmp_path))
    assert found.returncode == 0, found.stdout
    assert f"Python {version}." in found.stdout
    assert "0 data files have no index" in found.stdout
    assert f"{_JAR}\n" in run(python.with_name("puffin-index"), "spark-conf", "--release", _RELEASE).stdout
