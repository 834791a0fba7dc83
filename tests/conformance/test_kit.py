"""The conformance kit: made anew, it has the same bytes; our planner and the reader in Go answer all its questions."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.expressions.literals import literal
from pyiceberg.types import BinaryType, DoubleType, FixedType, FloatType, IcebergType, MapType

from conformance.kit_files import KitIO
from conformance.make_kit import FOLDER, SEGMENTS, KitSegment, MadeSegment, make_kit
from conformance.questions import details, field_id, rows_of
from planner.condition.tree.nodes import Leaf
from planner.prune.gate import Limits
from planner.view.cache import new_cache
from planner.view.index_view import IndexView
from puffin_index.definition.index_definition import contained_type
from puffin_index.index_table.table import entries_of
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.map_key import ColumnId, Contents, column_of_details, field_of, index_of
from puffin_index.keys.value_types import ValueType, value_type_of
from puffin_index.keys.values import key_of
from puffin_index.kinds.registry import KINDS
from puffin_index.segments.directory import STATISTICS
from tests.conftest import some
from tests.planner.plan_files import plan_files

GO: Final = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
READER: Final = FOLDER / "reader"
needs_go = pytest.mark.skipif(GO is None, reason="there is no Go compiler for the reader of the conformance kit")
LIMITS: Final = Limits(strict=True, rows_wanted=True, seconds=60)
FORMS: Final = {
    "bitmap of several blocks",
    "block that is a row set of puffin-index-contents-v1",
    "block that is a row set of puffin-index-postings-v1",
    "bloom filter of several pages",
    "block of a dictionary in a frame",
    "block of several sections",
    "container of bits",
    "container of rows",
    "container of runs",
    "entry of a single row",
    "half that is missing",
    "keys known to blocks of rows",
    "keys of a block in a frame",
    "part of a row set",
    "part of a row set in a frame",
    "part of plain bits",
    "part of plain bits in a frame",
    "matrix of several pages",
    "row of several keys",
    "root of two levels of puffin-index-postings-v1",
    "several matrices",
} | {f"blob {blob_type}" for kind in KINDS.values() for blob_type in kind.blob_types | kind.merged_types}


def _contents_of(segment: KitSegment) -> list[str]:
    return sorted({column for columns in segment.kinds.values() for column in columns if "#c#" in column})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kit")


@pytest.fixture(scope="module")
def made(folder: Path) -> dict[str, MadeSegment]:
    return {one.plan.name: one for one in make_kit(folder)}


def test_the_kit_made_anew_has_the_same_bytes(folder: Path, made: Mapping[str, MadeSegment]) -> None:
    names = ["questions.json", *(f"segments/{name}.puffin" for name in made)]
    assert sorted(p.name for p in (FOLDER / "segments").iterdir()) == sorted(f"{name}.puffin" for name in made)
    for name in names:
        assert (folder / name).read_bytes() == (FOLDER / name).read_bytes(), name


@needs_go
def test_the_reader_in_go_answers_all_questions_and_meets_every_form(tmp_path: Path) -> None:
    reader = tmp_path / "reader"
    subprocess.run([GO, "build", "-o", reader, "."], cwd=READER, check=True)

    found = subprocess.run([reader, FOLDER], check=True, capture_output=True, text=True).stdout.splitlines()

    assert found[0].startswith(f"{len(SEGMENTS)} segments, ")
    assert set(found[1:]) == FORMS


@needs_go
@pytest.mark.parametrize("change", ["answer", "segment"])
def test_the_reader_in_go_says_what_is_wrong(tmp_path: Path, change: str) -> None:
    kit = tmp_path / "kit"
    shutil.copytree(FOLDER / "segments", kit / "segments")
    questions = json.loads((FOLDER / "questions.json").read_text())
    if change == "answer":
        wrong = next(q for q in questions["small"]["questions"] if q["test"] == "range" and q["rows"][0])
        wrong["rows"][0][0][0] += 1
    else:
        segment = kit / "segments" / "plain.puffin"
        data = bytearray(segment.read_bytes())
        data[1000] ^= 1
        segment.write_bytes(data)
    (kit / "questions.json").write_text(json.dumps(questions))

    done = subprocess.run([GO, "run", ".", kit], cwd=READER, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert ("row group 0" if change == "answer" else "checksum of the blob") in done.stderr


@pytest.mark.parametrize("name", [segment.name for segment in SEGMENTS])
def test_the_planner_answers_all_questions(made: Mapping[str, MadeSegment], name: str) -> None:
    """Each index is asked alone, from the bytes of the repository."""
    one = made[name]
    io = KitIO({"folder": str(FOLDER)})
    view = IndexView(name, entries_of([one.written]), io, new_cache())
    questions = json.loads((FOLDER / "questions.json").read_text())[one.plan.table.name]
    asked = known = 0
    for index in questions["segments"][name]:
        column = _column_of(index)
        alone = view.only({index_of(column, index["kind"])})
        value_type = value_type_of(_type_of(one, column))
        own_questions = [question for question in questions["questions"] if _column_of(question) == column]
        for question in some(own_questions, 4):
            plan = plan_files(alone, Leaf(column, _test(question, one, value_type), value_type.name), one.files, LIMITS)
            due = np.array([sum(len(range(at, to + 1, by)) for at, to, by in rows) for rows in question["rows"]])
            assert not plan.warnings
            assert len(plan.matches) == len(due)
            assert not due[~plan.kept_mask].any(), (question, plan)
            is_known = plan.matches >= 0
            assert (plan.matches == due)[is_known].all(), (question, plan)
            asked += 1
            known += bool((is_known | ~plan.kept_mask).all())
    assert asked
    assert known > asked // 3


@pytest.mark.parametrize("name", [segment.name for segment in SEGMENTS if _contents_of(segment)])
def test_statistics_of_contents_are_those_of_the_source_rows(made: Mapping[str, MadeSegment], name: str) -> None:
    """The reader in Go cannot prove ranks: an index has a key of a row once, the statistics as often as the data."""
    one = made[name]
    data = (FOLDER / "segments" / f"{name}.puffin").read_bytes()
    for column in (column for column in _contents_of(one.plan) if details(column)["content"] != "words"):
        subject = column_of_details({"field-id": field_id(one.plan.table, column), **details(column)})
        key = dict(zip(("field_id", "kind"), index_of(subject, STATISTICS), strict=True))
        (place,) = (place for place in one.written.directories if key.items() <= place.items())
        with pa.ipc.open_stream(data[place["offset"] :][: place["length"]]) as stream:
            stored = stream.read_all().to_pylist()
        value_type = value_type_of(_type_of(one, subject))
        assert stored == [_statistics(rows, value_type) for rows in rows_of(one.plan.table, column)]


def _statistics(rows: Sequence[Sequence[object] | None], value_type: ValueType) -> dict[str, object]:
    keys = sorted(key_of(value, value_type) for row in rows for value in row or () if value is not None)
    return {
        "row_count": len(rows),
        "null_count": sum(row is None for row in rows),
        "nan_count": 0,
        "distinct_count": len(set(keys)),
        "minimum": keys[0] if keys else None,
        "maximum": keys[-1] if keys else None,
        "quantiles": [keys[round(rank * (len(keys) - 1) / 31)] for rank in range(32)] if keys else [],
    }


def _column_of(item: Mapping[str, Any]) -> ColumnId:
    return column_of_details({"field-id": item["field"], **item})


def _type_of(made: MadeSegment, column: ColumnId) -> IcebergType:
    found = made.plan.table.schema.find_type(field_of(column))
    if isinstance(column, Contents):
        return contained_type(found, column.part)
    return found.value_type if isinstance(found, MapType) else found


def _test(question: Mapping[str, Any], made: MadeSegment, value_type: ValueType) -> LeafTest:
    iceberg = _type_of(made, _column_of(question))

    def key(text: str | None) -> Key | None:
        if text is None:
            return None
        match iceberg:
            case BinaryType() | FixedType():
                value: object = bytes.fromhex(text)
            case FloatType() | DoubleType():
                # PyIceberg has no literals of NaN and of infinity.
                value = float(text)
            case _:
                value = literal(text).to(iceberg).value
        return key_of(value, value_type)

    match question["test"]:
        case "null":
            return NullTest(not question["negated"])
        case "in":
            keys: Iterator[Any] = map(key, question["values"])
            return SetTest(tuple(sorted(set(keys))), question["negated"])
        case _:
            inclusive = question["low-inclusive"], question["high-inclusive"]
            return RangeTest(key(question["low"]), key(question["high"]), *inclusive, question["negated"])
