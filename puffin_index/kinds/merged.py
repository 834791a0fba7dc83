"""Opening what covers several row groups and answers with rows: sorted postings, merged bitmaps, merged bit slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from pyroaring import BitMap

from puffin_index.errors import UnsupportedError
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.bsi.merged_slices import MergedSlices
from puffin_index.kinds.bsi.merged_slices_build import MERGED_BSI, MERGED_DICTIONARY_BSI
from puffin_index.kinds.postings.asked import AskedBlocks
from puffin_index.kinds.postings.look_up import POSTINGS, Postings
from puffin_index.kinds.postings.merged_bitmap import MERGED_BITMAP, MergedBitmap
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import Blob

MergedIndex: TypeAlias = Postings | MergedSlices

_POSTINGS: dict[str, type[Postings]] = {POSTINGS: Postings, MERGED_BITMAP: MergedBitmap}

MERGED_SLICES = frozenset({MERGED_BSI, MERGED_DICTIONARY_BSI})
MERGED_TYPES = MERGED_SLICES | _POSTINGS.keys()
"""The blob types that cover several row groups and answer with rows."""


class PreparedLookUp(Protocol):
    """A test of what covers several row groups."""

    def count_bounds(self) -> tuple[int, int]:
        """Return the least and the greatest number of rows that may satisfy the test."""

    def cost(self) -> tuple[int, int]:
        """Return the requests and bytes that `rows` takes."""

    def rows(self, candidates: BitMap | None = None) -> BitMap:
        """Return exactly the rows of the row space that satisfy the test, among the candidates if any are given."""

    def read(self, most_bytes: int) -> AskedBlocks | None:
        """Read blocks, to be searched with those of other blobs; None if there are none, or too many bytes of them."""


def open_merged(
    blob: Blob,
    blob_type: str,
    layout: Ints,
    value_type: ValueType,
    spans: Sequence[tuple[int, int]] | Ints,
) -> MergedIndex:
    """Open a blob that covers several row groups, without reading it.

    Args:
        blob: The blob.
        blob_type: Its blob type.
        layout: Its layout.
        value_type: The type of the keys.
        spans: For each row group that it covers, in order, base and row count in the segment's row space.

    Raises:
        UnsupportedError: If this release does not read the blob type, or the layout is of another version or domain.
        CorruptFileError: If the layout describes no such blob, or one of other row groups.
    """
    if blob_type not in MERGED_TYPES:
        raise UnsupportedError(f"{blob.location}: a blob {blob_type} does not answer for several row groups")
    if blob_type in MERGED_SLICES:
        return MergedSlices(blob, blob_type, layout, value_type, spans)
    return _POSTINGS[blob_type].open(blob, layout, value_type, spans)
