"""Reading many ranges of a file in few requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from puffin_index.storage.arrays import Ints
from puffin_index.storage.near import near_groups
from puffin_index.storage.ranged import RangedReader

Item = TypeVar("Item")
Result = TypeVar("Result")


class Each(Protocol):
    """Calls a function for each of some items, one after the other or side by side; returns the results in order."""

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item], /) -> list[Result]:
        """Return the results."""


def in_turn(function: Callable[[Item], Result], items: Sequence[Item], /) -> list[Result]:
    """Call a function for one item after the other."""
    return [function(item) for item in items]


def read_ranges(reader: RangedReader, offsets: Ints, sizes: Ints, each: Each = in_turn) -> list[memoryview]:
    """Read ranges of a file in one round of requests; near ranges share a request.

    Args:
        reader: The file.
        offsets: Where each range begins, in any order.
        sizes: The length of each range.
        each: Reads the requests.

    Raises:
        CorruptFileError: If a range leaves the file.
    """
    if not len(offsets):
        return []
    order = np.argsort(offsets, kind="stable")
    starts = offsets[order]
    first, ends = near_groups(starts, starts + sizes[order])
    requests = list(zip(starts[first].tolist(), (ends - starts[first]).tolist(), strict=True))
    data = each(lambda one: reader.read(one[0], one[1]), requests)
    request_of = np.searchsorted(starts[first], offsets, side="right") - 1
    begins = offsets - starts[first][request_of]
    places = zip(request_of.tolist(), begins.tolist(), (begins + sizes).tolist(), strict=True)
    return [data[request][begin:end] for request, begin, end in places]
