"""The kind `bitmap`: which rows have a value, from one row set a distinct value.

| option | values | meaning |
| --- | --- | --- |
| `layout` | `auto` (default), `bitmaps`, `postings` | bitmaps a row group, sorted postings a segment, or what pays |
| `version` | `2` (default), `1` | the version of Paimon's format; asks for bitmaps |
| `index-block-size` | `16kb` and the like | the size of the blocks of version 2 |

`layout_of` tells what options ask for. Which rows of a segment the postings have is the segment writer's work, so
`build` makes bitmaps whatever the layout.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pyroaring import BitMap

from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.keys.columns import Column
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import BlobIndex, Payload, RowSet
from puffin_index.kinds.bitmap.blob import VERSION_1, VERSION_2, serialize_bitmaps
from puffin_index.kinds.bitmap.lookup import Entries, open_entries
from puffin_index.kinds.bitmap.rows import BitmapBody
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import Blob

PAIMON_BITMAP_V1 = "paimon-bitmap-v1"
PAIMON_BITMAP_V2 = "paimon-bitmap-v2"
BITMAP_V2 = "puffin-index-bitmap-v2"
BITMAP_VERSIONS = {PAIMON_BITMAP_V1: VERSION_1, PAIMON_BITMAP_V2: VERSION_2, BITMAP_V2: VERSION_2}
BitmapLayout = Literal["auto", "bitmaps", "postings"]
_LAYOUTS: tuple[BitmapLayout, ...] = ("auto", "bitmaps", "postings")
_SIZE = re.compile(r"(\d{1,9})\s*(b|bytes|k|kb|kib|m|mb|mib)?", re.IGNORECASE)
_UNITS = {"b": 1, "k": 1024, "m": 1024 * 1024}
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 64, 64 * 1024 * 1024


def layout_of(options: Mapping[str, str]) -> BitmapLayout:
    """Return the layout that options ask for: `bitmaps` where they name a version of Paimon's format, too.

    Raises:
        DefinitionError: If there is no such layout, or it is not one for the other options.
    """
    asked = options.get("layout", "auto")
    layout = next((layout for layout in _LAYOUTS if layout == asked), None)
    if layout is None:
        raise DefinitionError(f"bitmap option layout={asked} is not one of {', '.join(_LAYOUTS)}")
    if "version" not in options:
        return layout
    if layout == "postings":
        raise DefinitionError("bitmap option layout=postings goes with no version, which is one of Paimon's bitmaps")
    return "bitmaps"


class BitmapIndex:
    """Answer any test from the entries of the values it is about."""

    def __init__(self, entries: Entries, body: BitmapBody, row_count: int) -> None:
        self._entries = entries
        self._body = body
        self._row_count = row_count

    def evaluate(self, test: LeafTest, candidates: BitMap | None = None) -> RowSet:
        """Return the rows that satisfy `test`, among the candidates."""
        if candidates is not None and not candidates:
            return RowSet(BitMap(), True)
        if isinstance(test, NullTest):
            rows = self._body.null_rows() if test.is_null else self._valid_rows()
        else:
            rows = self._set_rows(test) if isinstance(test, SetTest) else self._range_rows(test)
        return RowSet(rows if candidates is None else rows & candidates, True)

    def _valid_rows(self) -> BitMap:
        return BitMap(range(self._row_count)) - self._body.null_rows()

    def _set_rows(self, test: SetTest) -> BitMap:
        found = self._body.rows_of(self._entries.with_keys(test.keys))
        return self._valid_rows() - found if test.negated else found

    def _range_rows(self, test: RangeTest) -> BitMap:
        low = None if test.low is None else (test.low, not test.low_inclusive)
        high = None if test.high is None else (test.high, test.high_inclusive)
        inside, outside = self._entries.between(low, high)
        # The rows of the fewer entries are read: those inside of the range, or the others, to be taken away.
        if inside.cost <= outside.cost:
            found = self._body.rows_of(inside.entries())
            return self._valid_rows() - found if test.negated else found
        found = self._body.rows_of(outside.entries())
        return found if test.negated else self._valid_rows() - found


class BitmapKind:
    """Row sets of each distinct value, in Paimon's format."""

    name: str = "bitmap"
    blob_types: frozenset[str] = frozenset(BITMAP_VERSIONS)
    option_names: frozenset[str] = frozenset({"layout", "version", "index-block-size"})

    def check(self, value_type: ValueType, options: Mapping[str, str]) -> None:
        """Raise `DefinitionError` if an option is not known or does not suit the type."""
        for option in options:
            if option not in self.option_names:
                raise DefinitionError(f"kind bitmap of a {value_type.name} column has no option {option!r}")
        try:
            layout = layout_of(options)
        except DefinitionError as error:
            raise DefinitionError(f"{error} (a {value_type.name} column)") from error
        if layout == "postings" and "index-block-size" in options:
            raise DefinitionError(
                f"bitmap option layout=postings of a {value_type.name} column goes with no index-block-size"
            )
        version = options.get("version", "2")
        if version not in ("1", "2"):
            raise DefinitionError(f"bitmap option version={version} of a {value_type.name} column is not 1 or 2")
        if version == "1" and not _is_paimon_type(value_type):
            raise DefinitionError(f"bitmap version 1 is for Paimon, whose bitmaps have no {value_type.name} columns")
        if "index-block-size" in options:
            _block_bytes(options["index-block-size"], value_type)

    def build(self, column: Column, options: Mapping[str, str]) -> Payload:
        """Build the payload of one row group."""
        self.check(column.value_type, options)
        size = options.get("index-block-size")
        block_bytes = None if size is None else _block_bytes(size, column.value_type)
        version = int(options.get("version", VERSION_2))
        data, layout = serialize_bitmaps(column, version, block_bytes)
        if version == VERSION_1:
            return Payload(PAIMON_BITMAP_V1, data, layout)
        return Payload(PAIMON_BITMAP_V2 if _is_paimon_type(column.value_type) else BITMAP_V2, data, layout)

    def open(self, blob: Blob, blob_type: str, layout: Ints, value_type: ValueType, row_count: int) -> BlobIndex:
        """Open a payload; without a layout (a blob from Paimon) it is read whole.

        Raises:
            UnsupportedError: If this kind does not read the blob type.
        """
        if blob_type not in BITMAP_VERSIONS:
            raise UnsupportedError(f"{blob.location}: kind bitmap reads no blob {blob_type}")
        entries, body = open_entries(blob, BITMAP_VERSIONS[blob_type], layout, value_type, row_count)
        return BitmapIndex(entries, body, row_count)


def _is_paimon_type(value_type: ValueType) -> bool:
    return value_type.domain == "int64" or value_type.name == "string"


def _block_bytes(text: str, value_type: ValueType) -> int:
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) * _UNITS[(found[2] or "b")[0].lower()] if found else 0
    if not _LEAST_BLOCK_BYTES <= size <= _MOST_BLOCK_BYTES:
        raise DefinitionError(
            f"bitmap option index-block-size={text} of a {value_type.name} column is not a size from 64 bytes to 64 mb"
        )
    return size
