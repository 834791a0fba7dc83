"""The kind `bitmap`: the rows of each distinct value, as sorted postings of a segment.

| option | values | meaning |
| --- | --- | --- |
| `layout` | `postings` (default), `bitmaps` | postings, or Paimon's bitmaps of each row group, until a merge |
| `index-block-size` | `16kb` and the like | the size of the blocks of bitmaps |
| `content` | `elements`, `keys`, `values`, `words` | index what the arrays, maps or texts of the column contain |
| `block-rows` | `1024`, `2048`, `4096` (default), `8192`, `16384` | the rows of a block of words |
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.contents import BLOCK_ROWS, LEAST_BLOCK_ROWS, MOST_BLOCK_ROWS, SortedContents
from puffin_index.keys.leaf import LeafTest, RangeTest, SetTest
from puffin_index.keys.map_key import CONTENT
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import MergePart, OpenIndex, Payload, StoredPayload, as_it_was, merge_no_larger, runs_of
from puffin_index.kinds.bitmap.blob import serialize_bitmaps
from puffin_index.kinds.bitmap.lookup import BitmapIndex
from puffin_index.kinds.kind import Answer, IndexKind, KindBuilder, Options, Proof
from puffin_index.kinds.postings.build import POSTINGS, PlacedColumn, build_postings
from puffin_index.kinds.postings.contents import (
    CONTENTS,
    ContentsIndex,
    PlacedContents,
    build_contents,
    merge_contents,
    proof_of_contents,
)
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.kinds.postings.merge import merge_postings
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import Blob, BytesReader, run
from puffin_index.units import parse_size

_LAYOUTS = ("bitmaps", "postings")
_BLOCKS = [str(LEAST_BLOCK_ROWS << step) for step in range((MOST_BLOCK_ROWS // LEAST_BLOCK_ROWS).bit_length())]
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 64, 64 * 1024 * 1024


def layout_of(options: Options) -> str:
    """Return the layout of checked options; the option of bitmaps alone asks for bitmaps."""
    return options.get("layout", "bitmaps" if "index-block-size" in options else "postings")


def _block_bytes_of(options: Options, value_type: ValueType) -> int | None:
    """Return the block size, or None; raises DefinitionError if it is not between 64 bytes and 64 MB."""
    text = options.get("index-block-size")
    if text is None:
        return None
    with suppress(UnsupportedError):
        size = parse_size(text)
        if _LEAST_BLOCK_BYTES <= size <= _MOST_BLOCK_BYTES:
            return size
    raise DefinitionError(
        f"bitmap option index-block-size={text} of a {value_type.name} column is not a size from 64 bytes to 64 mb"
    )


@dataclass
class _PostingsBuilder(KindBuilder):
    """Builds the postings of a whole segment."""

    _placed: list[PlacedColumn] = field(default_factory=list)
    _contents: list[PlacedContents] = field(default_factory=list)

    def add(self, column: SortedColumn, base: int) -> Sequence[Payload]:
        """Take the next row group."""
        # Postings sort the integers of all row groups together, so the sorted form of one row group can be freed.
        is_int = column.column.value_type.domain == "int64"
        if isinstance(column, SortedContents):
            self._contents.append((base, SortedContents(column.contents) if is_int else column))
        else:
            self._placed.append((base, SortedColumn(column.column) if is_int else column))
        return []

    def finish(self) -> Sequence[Payload]:
        """Return the postings, if there are row groups."""
        postings = [build_postings(self._placed)] if self._placed else []
        return postings + ([build_contents(self._contents)] if self._contents else [])


PAIMON_BITMAP = "paimon-bitmap-v2"

_LOOKUP_BYTES = 48 * 1024
"""The approximate bytes of one look-up in a bitmap index: header, one block and one bitmap."""

_WIDE_TYPES = frozenset(
    {"float", "double", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns", "time", "uuid"}
)
"""Types whose columns seldom repeat a value."""


class BitmapKind(IndexKind):
    """The rows of each distinct value: sorted postings of a segment, or Paimon's bitmaps of a row group."""

    name = "bitmap"
    blob_types = frozenset({PAIMON_BITMAP})
    merged_types = frozenset({POSTINGS, CONTENTS})
    option_names = frozenset({BLOCK_ROWS, CONTENT, "layout", "index-block-size"})
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
        if options.get(BLOCK_ROWS, _BLOCKS[0]) not in _BLOCKS:
            raise DefinitionError(
                f"bitmap option {BLOCK_ROWS}={options[BLOCK_ROWS]} is not one of {', '.join(_BLOCKS)}"
            )

    def takes_contents(self, options: Options) -> bool:
        """Take contents as postings alone."""
        return layout_of(options) == "postings"

    def misfits(self, value_type: ValueType, options: Options) -> Iterator[str]:
        """Name the cases in which the layout of the options is a bad choice."""
        is_wide = value_type.name in _WIDE_TYPES or (value_type.is_decimal and value_type.domain == "bytes")
        if layout_of(options) == "bitmaps" and is_wide:
            yield (
                f"a {value_type.name} column mostly has many distinct values, for which one bitmap a value takes 7 to "
                "16 bytes a row; leave out layout=bitmaps, or use bsi"
            )

    def build(self, column: SortedColumn, options: Options) -> Payload:
        """Build the bitmaps of one row group, whatever the layout option."""
        value_type = column.column.value_type
        self.check(value_type, options)
        return Payload(PAIMON_BITMAP, *serialize_bitmaps(column, _block_bytes_of(options, value_type)))

    def builder(self, options: Options) -> KindBuilder:
        """Return a builder of bitmaps or postings, as the layout option says."""
        return _PostingsBuilder(self, options) if layout_of(options) == "postings" else KindBuilder(self, options)

    def open(self, payload: StoredPayload) -> OpenIndex:
        """Open a payload."""
        if payload.blob_type == POSTINGS:
            return Postings(payload)
        if payload.blob_type == CONTENTS:
            return ContentsIndex(payload)
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

    def merge(self, parts: Sequence[MergePart], options: Options) -> Iterator[Payload]:
        """Merge bitmaps and postings to postings."""
        del options
        for some in runs_of(self.kept_parts(parts), _block_rows, sys.maxsize):
            yield from merge_no_larger(some, _merged)

    def proof(self, opened: OpenIndex, row_counts: Ints) -> Proof:
        """Return a proof by the keys of all rows."""
        if isinstance(opened, ContentsIndex):
            return proof_of_contents(opened, row_counts)
        return super().proof(opened, row_counts)

    def paimon_reads(self, blob_type: str, value_type: ValueType) -> bool:
        """Return whether Paimon reads blobs of a type for a column of a type, which not all of its bitmaps support."""
        is_known = value_type.domain == "int64" or value_type.name == "string"
        return is_known and super().paimon_reads(blob_type, value_type)


def _block_rows(part: MergePart) -> int:
    """Return the rows of a block of contents; 0 of other payloads, which know the key of each row."""
    return ContentsIndex(part.payload).block_rows if part.payload.blob_type == CONTENTS else 0


_ROWS_AT_ONCE = 1024 * 1024
"""The approximate number of rows of bitmaps that are decoded together."""


def _merged(parts: Sequence[MergePart]) -> list[Payload]:
    first = parts[0]
    is_merged = first.payload.blob_type in BitmapKind.merged_types
    if len(parts) == 1 and is_merged and (first.new_bases == first.payload.spans[:, 0]).all():
        return [as_it_was(first)]
    if first.payload.blob_type == CONTENTS:
        return [merge_contents(parts)]
    postings: list[MergePart] = []
    runs = runs_of(
        parts, lambda part: part.payload.blob_type, _ROWS_AT_ONCE, lambda part: int(part.payload.spans[:, 1].sum())
    )
    for some in runs:
        postings += some if some[0].payload.blob_type == POSTINGS else [_as_postings(some)]
    return [merge_postings(postings)]


def _as_postings(parts: Sequence[MergePart]) -> MergePart:
    """Return the postings of row groups in place of the bitmaps of each, at the new bases."""
    columns = [SortedColumn(run(BitmapIndex(part.payload).keys_of(None))) for part in parts]
    spans, first = np.concatenate([part.new_spans for part in parts]), parts[0].payload
    own = build_postings(list(zip(spans[:, 0].tolist(), columns, strict=True)))
    blob = Blob(BytesReader.of(own.data, first.blob.location), 0, len(own.data))
    return MergePart(StoredPayload(blob, POSTINGS, own.layout, first.value_type, spans), spans[:, 0])
