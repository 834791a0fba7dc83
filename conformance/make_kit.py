"""Make the kit's segments, and questions with answers that come from the source rows.

python -m conformance.make_kit [FOLDER]
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyiceberg.types import PrimitiveType

from conformance.kit_files import SCHEME, KitIO, build_segment, compact_segments, write_table
from conformance.questions import ask, details, field_id
from conformance.tables import ALONE, KEYS, LARGE, SMALL, TYPES, KitTable
from puffin_index.data.data_table import DataFile
from puffin_index.definition.index_definition import IndexDefinition
from puffin_index.segments.segment import Segment

FOLDER: Final = Path(__file__).parent
_ALL: Final = (
    *(c.name for c in TYPES if isinstance(c.iceberg, PrimitiveType)),
    "place.floor",
    "tags#k#color",
    "counts#k#-7",
)
_FORMS: Final = (
    "flag",
    "small",
    "big",
    "lowest",
    "day",
    "wide",
    "ratio",
    "amount",
    "name",
    "code",
    "place.floor",
    "tags#k#color",
)
_CONTENTS: Final = ("labels#c#elements", "numbers#c#elements", "tags#c#keys", "tags#c#values", "name#c#words")


@dataclass(frozen=True)
class KitSegment:
    """A segment of the kit: its table, its kinds, and whether segments of single data files were compacted to it."""

    name: str
    table: KitTable
    kinds: Mapping[str, Sequence[str]]
    options: Mapping[str, str]
    is_compacted: bool = False

    @property
    def definition(self) -> IndexDefinition:
        """The definition of its indexes."""
        options = {
            f"{c}.{key}": value
            for c in {column for columns in self.kinds.values() for column in columns}
            for key, value in self.options.items()
            if self._knows(c, key)
        }
        return IndexDefinition.of(**{kind: list(columns) for kind, columns in self.kinds.items()}, options=options)

    def _knows(self, column: str, key: str) -> bool:
        if "#c#" in column and key == "layout":
            return False
        return column in self.kinds.get({"compression": "bsi", "items": "bloom"}.get(key, "bitmap"), ())


SEGMENTS: Final = (
    KitSegment("built", SMALL, {"bitmap": _ALL + _CONTENTS, "bsi": _ALL, "bloom": _FORMS + _CONTENTS}, {}),
    KitSegment(
        "plain",
        SMALL,
        {"bitmap": _FORMS, "bsi": _FORMS},
        {"layout": "bitmaps", "index-block-size": "64b", "compression": "none"},
    ),
    KitSegment(
        "compacted",
        SMALL,
        {"bitmap": _FORMS + _CONTENTS, "bsi": _FORMS, "bloom": _FORMS + _CONTENTS},
        {"layout": "bitmaps"},
        is_compacted=True,
    ),
    KitSegment(
        "large",
        LARGE,
        {
            "bitmap": ("steps", "parity", "cycle", "side", "block", "word", "shelves#c#elements", "word#c#words"),
            "bsi": ("steps", "parity", "word"),
            "bloom": ("steps",),
        },
        {},
    ),
    KitSegment("large-bitmaps", LARGE, {"bitmap": ("parity", "block", "word")}, {"layout": "bitmaps"}),
    KitSegment(
        "keys",
        KEYS,
        {"bitmap": ("number", "path"), "bsi": ("path",), "bloom": ("number",)},
        {"items": "20000"},
        is_compacted=True,
    ),
    KitSegment("large-filter", ALONE, {"bitmap": ("number",), "bloom": ("number",)}, {"items": "120000"}),
)


@dataclass(frozen=True)
class MadeSegment:
    """A segment, what the build says of it, and its data files, which are gone; locations are those of a `KitIO`."""

    plan: KitSegment
    written: Segment
    files: tuple[DataFile, ...]


def make_kit(folder: Path) -> list[MadeSegment]:
    """Write all segments and `questions.json` into a folder."""
    (folder / "segments").mkdir(parents=True, exist_ok=True)
    tables: dict[str, dict[str, Any]] = {}
    made: list[MadeSegment] = []
    for segment in SEGMENTS:
        made.append(_make_segment(segment, folder))
        indexes = [
            {"field": field_id(segment.table, name), **details(name), "kind": kind}
            for kind, names in segment.kinds.items()
            for name in names
        ]
        table = tables.setdefault(segment.table.name, {"segments": {}, "questions": []})
        table["segments"][segment.name] = indexes
    for name, table in tables.items():
        own = [segment for segment in SEGMENTS if segment.table.name == name]
        columns = dict.fromkeys(column for segment in own for names in segment.kinds.values() for column in names)
        table["questions"] = list(ask(own[0].table, columns))
    (folder / "questions.json").write_text(_text(tables))
    return made


def _make_segment(segment: KitSegment, folder: Path) -> MadeSegment:
    with tempfile.TemporaryDirectory() as scratch:
        io = KitIO({"folder": scratch})
        files = tuple(write_table(segment.table, Path(scratch)))
        make = compact_segments if segment.is_compacted else build_segment
        written = make(segment.table, segment.definition, files, io)
        assert not written.skipped, written.skipped
        data = (Path(scratch) / written.location.rpartition("/")[2]).read_bytes()
    name = f"segments/{segment.name}.puffin"
    (folder / name).write_bytes(data)
    return MadeSegment(segment, replace(written, location=f"{SCHEME}{name}"), files)


def _text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Give JSON of one line a segment or question."""
    parts: list[str] = []
    for name, table in tables.items():
        segments = ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in table["segments"].items())
        questions = ",\n".join(f"   {json.dumps(question)}" for question in table["questions"])
        parts.append(
            f' {json.dumps(name)}: {{\n  "segments": {{\n{segments}\n  }},\n  "questions": [\n{questions}\n  ]\n }}'
        )
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    make_kit(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
