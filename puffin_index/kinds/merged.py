"""Opening what covers several row groups and answers with rows: sorted postings and merged bitmaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from puffin_index.errors import UnsupportedError
from puffin_index.kinds.merged_bitmap import MERGED_BITMAP, MergedBitmap
from puffin_index.kinds.postings import POSTINGS, Postings
from puffin_index.ranged import Blob
from puffin_index.value_types import ValueType

_OPENERS: dict[str, type[Postings]] = {POSTINGS: Postings, MERGED_BITMAP: MergedBitmap}


def open_merged(
    blob: Blob,
    blob_type: str,
    layout: npt.NDArray[np.int64],
    value_type: ValueType,
    spans: Sequence[tuple[int, int]] | npt.NDArray[np.int64],
) -> Postings:
    """Open a blob of the kind bitmap that covers several row groups, without reading it.

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
    opener = _OPENERS.get(blob_type)
    if opener is None:
        raise UnsupportedError(f"{blob.location}: a blob {blob_type} does not answer for several row groups")
    return opener.open(blob, layout, value_type, spans)
