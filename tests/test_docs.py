"""The documents name what there is, their links lead somewhere, and their worked numbers are those of the code."""

import ast
import importlib
import pkgutil
import re
import tomllib
from collections import Counter
from decimal import Decimal
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import planner
import puffin_index
from planner.commands.main import main
from planner.spark.settings import Settings
from puffin_index.formats.paimon_container import MAGIC
from puffin_index.index_table.table import SCHEMA
from puffin_index.keys.leaf import Key
from puffin_index.keys.value_types import form_of, value_type_named
from puffin_index.keys.values import key_of
from puffin_index.kinds.bloom.filter import bit_positions, filter_shape, grid_bits, key_hashes
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.binary import write_int64_be, write_uint32_be
from puffin_index.storage.parts import checksum32
from tests.documents import LANGUAGES, NOT_RUN, PAGES, RUN_PAGES, blocks_of

ROOT = Path(__file__).parents[1]
_SKIPPED = {"data", "node_modules", "dist", "build"}
_BLOB_TYPE = re.compile(r"(?:puffin-index|paimon)-[a-z0-9-]+-v\d+")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_SOURCE = re.compile(r"`([\w/]+\.(?:py|java|go))`")
_LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
_INSTALLED = re.compile(r"pip install ([^`\n]+)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _markdown_files() -> list[Path]:
    """All documents of the project, not those of its environment."""
    found = [path.relative_to(ROOT) for path in ROOT.rglob("*.md")]
    return sorted(path for path in found if not any(part.startswith(".") or part in _SKIPPED for part in path.parts))


def _text(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _formats() -> str:
    return _text(Path("docs/formats.md")) + _text(Path("docs/payloads.md"))


def _blob_types() -> set[str]:
    """Every constant of the package that is a blob type."""
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(puffin_index.__path__, "puffin_index.")]
    constants = [value for module in modules for value in vars(module).values() if isinstance(value, str)]
    return {value for value in constants if _BLOB_TYPE.fullmatch(value)}


def test_every_blob_type_and_no_other_has_its_bytes_described() -> None:
    blob_types = _blob_types()
    assert blob_types >= {blob_type for kind in KINDS.values() for blob_type in kind.blob_types}
    assert blob_types >= {"puffin-index-postings-v1", "puffin-index-statistics-v1", "puffin-index-directory-v1"}
    text = _formats()
    assert sorted(name for name in blob_types if f"`{name}`" not in text) == []
    assert set(_BLOB_TYPE.findall(text)) == blob_types


def test_every_source_file_that_is_named_is_there() -> None:
    tops = ("puffin_index", "planner", "ssb_bench", "tests", "conformance", "examples", "scripts")
    there = {f"/{path.relative_to(ROOT)}" for top in tops for path in (ROOT / top).rglob("*.*")}
    named = {(str(path), name) for path in _markdown_files() for name in _SOURCE.findall(_text(path))}
    assert ("CONTRIBUTING.md", "prune/search.py") in named
    assert sorted(pair for pair in named if not any(path.endswith(f"/{pair[1]}") for path in there)) == []


def test_every_command_is_in_the_manual() -> None:
    assert isinstance(main, click.Group)
    text = "\n".join(_text(path) for path in _markdown_files() if path.parts[0] in ("README.md", "docs"))
    names = main.list_commands(click.Context(main))
    assert {"create", "build", "explain", "inspect"} <= set(names)
    assert [name for name in names if not re.search(rf"puffin-index\s+{re.escape(name)}\b", text)] == []


def test_every_setting_is_in_the_table_and_no_other() -> None:
    named = set(re.findall(r"^\| `spark\.puffin-index\.([a-z-]+)`", _text(Path("docs/settings.md")), re.MULTILINE))
    assert named == set(Settings.names())


def test_every_column_of_the_index_table_is_described() -> None:
    text = _formats()
    names = [SCHEMA.find_column_name(field_id) for field_id in SCHEMA.field_ids]
    leaves = {name.rpartition(".")[2] for name in names if name is not None} - {"element"}
    assert sorted(name for name in leaves if f"`{name}`" not in text) == []


@pytest.mark.parametrize("path", _markdown_files(), ids=str)
def test_links_lead_to_a_file_and_a_heading(path: Path) -> None:
    broken: list[str] = []
    for link in _LINK.findall(_FENCE.sub("", _text(path))):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / path.parent / name) if name else ROOT / path
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("path", _markdown_files(), ids=str)
def test_no_page_has_a_heading_twice(path: Path) -> None:
    assert [anchor for anchor, count in Counter(_anchors(ROOT / path)).items() if count > 1] == []


def _anchors(path: Path) -> list[str]:
    headings = _HEADING.findall(_FENCE.sub("", path.read_text(encoding="utf-8")))
    return [re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings]


@pytest.mark.parametrize(
    ("type_name", "value", "described"),
    [
        ("long", 42, "long 42"),
        ("int", -1, "int -1"),
        ("boolean", True, "boolean true"),
        ("double", 1.5, "double 1.5"),
        ("float", -2.5, "float -2.5"),
        ("string", "iceberg", "string `iceberg`"),
        ("decimal(38,2)", Decimal("1.00"), "decimal(38,2) 1.00"),
    ],
)
def test_worked_bloom_positions_are_those_of_the_code(type_name: str, value: object, described: str) -> None:
    value_type = value_type_named(type_name)
    bits, k = filter_shape(100, 0.02)
    hashes = key_hashes(_one(key_of(value, value_type)), form_of(value_type))
    positions = " ".join(str(int(place[0])) for place in bit_positions(hashes, k, bits))
    assert f"positions for m = {bits}, k = {k}" in _formats()
    assert f"| {described} | {int(hashes.view(np.uint64)[0]):016X} | {positions} |" in _formats()


def test_the_worked_size_of_a_filter_is_that_of_the_code() -> None:
    bits, k = filter_shape(2600, 0.1)
    assert f"n = 2,600, m = {bits:,} rounded up to {grid_bits(bits):,}, k = {k}" in _formats()


def _one(key: Key) -> np.ndarray[tuple[int], np.dtype[np.int64]] | pa.LargeBinaryArray:
    return np.array([key], np.int64) if isinstance(key, int) else pa.array([key], pa.large_binary())


@pytest.mark.parametrize("value", [-1.5, -0.0, float("nan")])
def test_worked_keys_of_doubles_are_those_of_the_code(value: float) -> None:
    name = "NaN" if value != value else str(value)
    assert f"| {name} | {key_of(value, value_type_named('double'))!r} " in _formats()


def test_worked_bytes_are_those_of_the_code() -> None:
    text = _formats()
    for data in (write_int64_be(MAGIC), BitMap().serialize(), write_uint32_be(checksum32(b"iceberg"))):
        assert f"`{data.hex(' ').upper()}`" in text


def test_what_the_pages_import_is_what_they_install() -> None:
    text = "".join(_text(Path(page)) for page in RUN_PAGES)
    project = tomllib.loads(_text(Path("pyproject.toml")))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    named = {re.split(r"[^\w-]", one)[0] for one in (*wanted, *" ".join(_INSTALLED.findall(text)).split())}
    nodes = [
        node
        for page in RUN_PAGES
        for block in blocks_of(page)
        if block.language == "python"
        for node in ast.walk(ast.parse(block.text))
    ]
    used = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    used |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    # PyArrow imports pandas for this method alone.
    used |= {"pandas" for node in nodes if isinstance(node, ast.Attribute) and node.attr == "to_pandas"}
    foreign = {name.partition(".")[0] for name in used} - {"planner", "puffin_index"}
    assert foreign >= {"duckdb", "pyspark"}
    assert foreign <= named


@pytest.mark.parametrize(("page", "most"), [("README.md", 90), *((page, 450) for page in PAGES)])
def test_the_readme_has_two_screens_and_no_page_more_than_ten(page: str, most: int) -> None:
    assert len(_text(Path(page)).splitlines()) <= most


def test_every_page_is_in_the_site() -> None:
    assert sorted(PAGES) == sorted(str(path) for path in _markdown_files() if path.parts[0] == "docs")


def test_the_pages_have_the_version_of_the_package() -> None:
    version = tomllib.loads(_text(Path("pyproject.toml")))["project"]["version"]
    for page in ("README.md", "docs/versions.md"):
        assert f"This is version {version}" in _text(Path(page))
    assert f"puffin_index-{version}-py3" in _text(Path("docs/start.md"))
    assert re.findall(r"^## (.+)$", _text(Path("CHANGELOG.md")), re.MULTILINE)[0] == version


def test_every_block_is_run_or_says_why_not() -> None:
    """`tests/spark/test_documents.py` runs them."""
    blocks = [(page, block) for page in RUN_PAGES for block in blocks_of(page)]
    others = {(block.language, page) for page, block in blocks if block.language not in LANGUAGES}
    assert {language for language, _ in others} == {"text"}
    marked = [page for page, block in blocks if block.is_marked]
    # An installation, a query log of some days, what a machine has, the name of a data file, and a run of an hour.
    assert marked == ["docs/start.md", "docs/advice.md", *2 * ["docs/operations.md"], "docs/benchmark.md"]
    assert sum(NOT_RUN in block.text for _, block in blocks) == len(marked)
    builders = [block for page in PAGES if page not in RUN_PAGES for block in blocks_of(page)]
    assert [block.text for block in builders if block.language != "text" and not block.is_marked] == []


def test_the_interface_that_stays_is_the_interface() -> None:
    table = _text(Path("docs/versions.md")).partition("## Interface")[2].partition("## Upgrading")[0]
    for package in (planner, puffin_index):
        (line,) = (line for line in table.splitlines() if line.startswith(f"| `{package.__name__}` |"))
        assert sorted(re.findall(r"`(\w+)`", line)[1:]) == sorted(package.__all__)
