"""The kind `bitmap`: one row set per distinct value, one payload per row group, or sorted postings of a segment.

| option | values | meaning |
| --- | --- | --- |
| `layout` | `auto` (default), `bitmaps`, `postings` | bitmaps per row group, postings per segment, or what pays |
| `index-block-size` | `16kb` and the like | the size of the blocks of bitmaps |
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import LeafTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import (
    MERGED_BYTES,
    MergedPayload,
    MergePart,
    OpenIndex,
    Payload,
    StoredPayload,
    runs_of,
)
from puffin_index.kinds.bitmap.blob import serialize_bitmaps
from puffin_index.kinds.bitmap.lookup import BitmapIndex
from puffin_index.kinds.bitmap.merged_bitmap import MERGED_BITMAP, MergedBitmap
from puffin_index.kinds.bitmap.merged_bitmap_build import merge_all_postings, merge_bitmaps
from puffin_index.kinds.kind import Answer, IndexKind, KindBuilder, Options
from puffin_index.kinds.postings.build import POSTINGS, PlacedColumn, build_postings
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.storage.arrays import Ints

_LAYOUTS = ("auto", "bitmaps", "postings")
_SIZE = re.compile(r"(\d{1,9})\s*(b|bytes|k|kb|kib|m|mb|mib)?", re.IGNORECASE)
_UNITS = {"b": 1, "k": 1024, "m": 1024 * 1024}
_ROWS_OF_A_KEY = 2048
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 64, 64 * 1024 * 1024


def layout_of(options: Options) -> str:
    """Return the layout of checked options."""
    return options.get("layout", "auto")


def _block_bytes_of(options: Options, value_type: ValueType) -> int | None:
    """Return the block size of the options in bytes; None if the options leave the size open.

    Raises DefinitionError if the size is not between 64 bytes and 64 MB.
    """
    text = options.get("index-block-size")
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) * _UNITS[(found[2] or "b")[0].lower()] if found else 0
    if not _LEAST_BLOCK_BYTES <= size <= _MOST_BLOCK_BYTES:
        raise DefinitionError(
            f"bitmap option index-block-size={text} of a {value_type.name} column is not a size from 64 bytes to 64 mb"
        )
    return size


class BitmapBuilder(KindBuilder):
    """Builds one payload per row group, or postings if the layout says so or they pay for the first row group.

    For many distinct values, one bitmap per value takes 7 to 14 bytes a row, postings take 1 to 4.
    """

    def __init__(self, kind: IndexKind, options: Options) -> None:
        super().__init__(kind, options)
        self._layout = layout_of(options)
        self._placed: list[PlacedColumn] = []

    def add(self, column: SortedColumn, base: int) -> Sequence[MergedPayload]:
        """Take the next row group; return its payload unless the builder gathers postings."""
        if self._layout == "auto":
            self._layout = "postings" if _pays(column) else "bitmaps"
        if self._layout == "bitmaps":
            return super().add(column, base)
        # Postings sort the integers of all row groups together, so the sorted form of one row group can be freed.
        is_int = column.column.value_type.domain == "int64"
        self._placed.append(PlacedColumn(base, SortedColumn(column.column) if is_int else column))
        return []

    def finish(self) -> Sequence[MergedPayload]:
        """Return the postings, if the builder gathered any."""
        return [MergedPayload(build_postings(self._placed), len(self._placed))] if self._placed else []


def _pays(column: SortedColumn) -> bool:
    """Return whether postings pay: up to some rows a key.

    Measured with 6 M random rows in row groups of 245,760: at 3,840 rows a key, `=` takes 2.9 ms with bitmaps and
    4.7 ms with postings, at 1,920 rows 2.9 ms and 2.7 ms, at 60 rows 2.8 ms and 0.8 ms. Postings lose with frequent
    keys because a look-up decodes all rows of the key, even where few row groups are undecided.
    """
    return column.column.valid_count <= _ROWS_OF_A_KEY * column.distinct_count


PAIMON_BITMAP = "paimon-bitmap-v2"

_LOOKUP_BYTES = 48 * 1024
"""The approximate bytes of one look-up in a bitmap index: header, one block and one bitmap."""

_MANY_TEXTS_BYTES = 6.0
"""Data files store few distinct texts by dictionaries, in a byte or two a row."""

_WIDE_TYPES = frozenset(
    {"float", "double", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns", "time", "uuid"}
)
"""Types whose columns seldom repeat a value."""


class BitmapKind(IndexKind):
    """The row set of each distinct value: per row group in Paimon's format, or per segment as sorted postings."""

    name = "bitmap"
    blob_types = frozenset({PAIMON_BITMAP})
    merged_types = frozenset({MERGED_BITMAP, POSTINGS})
    option_names = frozenset({"layout", "index-block-size"})
    bytes_per_row = 4
    is_found_by_key = True
    holds_keys = True
    paimon_name = "bitmap"
    paimon_types = blob_types

    def check(self, value_type: ValueType, options: Options) -> None:
        """Raise `DefinitionError` if an option is unknown or does not suit the type."""
        super().check(value_type, options)
        layout = layout_of(options)
        said = f"bitmap option layout={layout} of a {value_type.name} column"
        if layout not in _LAYOUTS:
            raise DefinitionError(f"{said} is not one of {', '.join(_LAYOUTS)}")
        if layout == "postings" and "index-block-size" in options:
            raise DefinitionError(f"{said} goes with no index-block-size")
        _block_bytes_of(options, value_type)

    def misfits(self, value_type: ValueType, options: Options, bytes_per_row: float | None = None) -> Iterator[str]:
        """Name the cases in which the layout of the options is a bad choice."""
        layout = layout_of(options)
        is_wide = value_type.name in _WIDE_TYPES or (value_type.is_decimal and value_type.domain == "bytes")
        if layout == "bitmaps" and is_wide:
            yield (
                f"a {value_type.name} column mostly has many distinct values, for which one bitmap a value takes 7 to "
                "16 bytes a row; leave out layout=bitmaps, or use bsi"
            )
        if layout == "bitmaps" and value_type.name == "string" and (bytes_per_row or 0) >= _MANY_TEXTS_BYTES:
            yield (
                f"texts of {bytes_per_row:.1f} bytes a row in the data files mostly have many distinct values, for "
                "which one bitmap a value takes 9 to 70 bytes a row, and sorted postings 3 to 6; leave out "
                "layout=bitmaps"
            )
        if layout == "postings" and value_type.name == "boolean":
            yield "two values need no sorted postings; leave out layout=postings"

    def build(self, column: SortedColumn, options: Options) -> Payload:
        """Build the bitmaps of one row group, whatever the layout option."""
        value_type = column.column.value_type
        self.check(value_type, options)
        return Payload(PAIMON_BITMAP, *serialize_bitmaps(column, _block_bytes_of(options, value_type)))

    def builder(self, options: Options) -> KindBuilder:
        """Return a builder of bitmaps or postings, as the layout option says."""
        return BitmapBuilder(self, options)

    def open(self, payload: StoredPayload) -> OpenIndex:
        """Open a payload."""
        if payload.blob_type == POSTINGS:
            return Postings(payload)
        if payload.blob_type == MERGED_BITMAP:
            return MergedBitmap(payload)
        if payload.blob_type != PAIMON_BITMAP:
            raise UnsupportedError(f"{payload.blob.location}: kind bitmap reads no blob {payload.blob_type}")
        return BitmapIndex(payload)

    def answers(self, test: LeafTest) -> Answer:
        """Answer every test exactly."""
        del test
        return Answer.EXACT

    def rank(self, test: LeafTest) -> int:
        """Rank ranges behind bit slices, which read fewer bytes than the bitmaps of all keys of a range."""
        return 2 if isinstance(test, RangeTest) else 0

    def cost(self, test: LeafTest, lengths: Ints) -> Ints:
        """Estimate some blocks and bitmaps for each key; a range may read everything."""
        if isinstance(test, RangeTest):
            return lengths
        keys = len(test.keys) if isinstance(test, SetTest) else 1
        return np.minimum(lengths, _LOOKUP_BYTES * max(1, keys))

    def merged_form(self, blob_type: str) -> str:
        """Return the form after a merge: postings stay postings, bitmaps become merged bitmaps."""
        super().merged_form(blob_type)
        return POSTINGS if blob_type == POSTINGS else MERGED_BITMAP

    def merge(self, parts: Sequence[MergePart], options: Options) -> Iterator[MergedPayload]:
        """Merge bitmaps to merged bitmaps, and postings to postings."""
        del options
        kept = [part for part in parts if part.is_kept.any()]
        for same in runs_of(kept, self.form_of, None):
            if same[0].payload.blob_type == POSTINGS:
                yield merge_all_postings(same)
                continue
            for run in runs_of(same, lambda _: None, MERGED_BYTES):
                yield from merge_bitmaps(run)

    def paimon_reads(self, blob_type: str, value_type: ValueType) -> bool:
        """Return whether Paimon reads blobs of a type for a column of a type, which not all of its bitmaps support."""
        is_known = value_type.domain == "int64" or value_type.name == "string"
        return is_known and super().paimon_reads(blob_type, value_type)
