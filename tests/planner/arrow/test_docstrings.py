"""Searches of texts that nobody made for this: the docstrings of installed packages, with a row-by-row oracle."""

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TypeAlias

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import UnsupportedError

ROW_GROUP_ROWS, QUERIES = 1_500, 400
Search: TypeAlias = tuple[str, Callable[[str], bool]]
"""A condition, and the same for one text."""


def docstrings() -> Iterator[str]:
    for package in ("numpy", "pyarrow", "pyspark"):
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        for path in sorted(Path(spec.origin).parent.rglob("*.py")):
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    yield ast.get_docstring(node, clean=False) or ""


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def search(random: Random, texts: list[str]) -> Search:
    """A search for parts of some text, so that there is mostly something to find."""
    text = random.choice([text for text in random.choices(texts, k=20) if text] or ["none"])
    begin = random.choice([0, random.randrange(len(text))])
    piece = text[begin : begin + random.choice([3, 8, 20, 60])]
    words = re.findall(r"\w+", text)
    word = random.choice(words) if words else piece
    match random.randrange(6):
        case 0:
            return f"message = {literal(text)}", lambda own: own == text
        case 1:
            others = random.choices(texts, k=3)
            listed = ", ".join(map(literal, others))
            return f"message IN ({listed})", lambda own: own in others
        case 2 | 3:
            pieces = random.choice([["", piece, ""], [piece, ""], ["", piece], ["", word, piece, ""], ["", word, ""]])
            wild = random.choice(["%", "%", "%", "_"])
            pattern = wild.join(re.sub(r"([\\%_])", r"\\\1", one) for one in pieces)
            regex = re.compile({"%": ".*", "_": "."}[wild].join(map(re.escape, pieces)), re.DOTALL)
            return f"message LIKE {literal(pattern)}", lambda own: regex.fullmatch(own) is not None
        case 4:
            own_word = word.upper() if word.isascii() else "numpy"
            return (
                f"message ILIKE '%{own_word.replace('_', chr(92) * 2 + '_')}%'",
                lambda own: own_word.lower() in own.lower(),
            )
        case _:
            parts = re.escape(word), random.choice(["", " +", "[a-z]*", ".", "(s|ed)?"]), re.escape(piece[:4].strip())
            regex = re.compile("".join(parts))
            return f"message RLIKE {literal(regex.pattern)}", lambda own: regex.search(own) is not None


@pytest.mark.nightly
def test_searches_of_docstrings_find_what_an_oracle_finds(local_catalog: SqlCatalog) -> None:
    texts = [*docstrings()]
    schema = pa.schema([("id", pa.int64()), ("message", pa.string())])
    properties = {"write.parquet.row-group-limit": str(ROW_GROUP_ROWS)}
    table = local_catalog.create_table("ns.t", schema, properties=properties)
    table.append(pa.table({"id": [*range(len(texts))], "message": texts}, schema))
    options = {"message.content": "words", "message.block-rows": "1024"}
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["message"], options=options))
    index.build(workers=1)
    random = Random(7)
    dropped = scanned = 0
    for _ in range(QUERIES):
        where, matches = search(random, texts)
        due = {number for number, text in enumerate(texts) if matches(text)}
        plan = planner.plan(index, where, strict=True)
        gone = {split.row_group for split in plan.splits if split.verdict == "dropped"}
        listed = {split.row_group for split in plan.splits}
        assert not {number // ROW_GROUP_ROWS for number in due} & gone, where
        assert {number // ROW_GROUP_ROWS for number in due} <= listed, where
        dropped += len(gone)
        try:
            found = planner.scan(index, where, ["id"]).read_all()["id"].to_pylist()
        except UnsupportedError:
            continue  # only Spark knows what the pattern means for texts with line breaks
        assert set(found) == due, where
        scanned += 1
    assert dropped > QUERIES
    assert scanned > QUERIES // 3
