"""The byte ranges that make a reader read one row group of a data file alone.

Engines hand a reader a data file and a range of bytes. A row group belongs to a range if its point lies in the range.
A Parquet row group's point is its midpoint, as parquet-java computes it from the footer. An ORC stripe's point is its
first byte.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

READ_WHOLE = -1
"""Stands in place of every start if no ranges divide the file into its row groups."""


def range_starts(offsets: Sequence[int], points: Sequence[int], file_size: int) -> tuple[int, ...]:
    """Choose the start of each row group's range; a range ends where the next range in the file begins.

    Args:
        offsets: The first byte of each row group, as the footer states it; the start wherever the offset is exact.
        points: The point of each row group, in the same order.
        file_size: The size of the file in bytes, which is the end of the last range.

    Returns:
        One start for each row group, in the same order. All starts are `READ_WHOLE` if two row groups have the same
        point or a point lies outside the file.
    """
    order = np.argsort(np.asarray(points, np.int64), kind="stable")
    point, offset = np.asarray(points, np.int64)[order], np.asarray(offsets, np.int64)[order]
    before = np.concatenate(([-1], point[:-1]))
    if (point <= before).any() or (point >= file_size).any():
        return (READ_WHOLE,) * len(point)
    starts = np.empty(len(point), np.int64)
    starts[order] = np.where((offset > before) & (offset <= point), offset, point)
    return tuple(starts.tolist())
