"""The keys that a column has in an index view, for conditions that are evaluated key by key."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import xxhash

from planner.condition.tree.nodes import Leaf
from planner.view.directories import FieldStatistics, IndexReads, IndexTrouble, KindDirectory, or_trouble
from planner.view.index_cache import KeyList
from planner.view.index_view import IndexView
from puffin_index.jobs.log_lines import level_of_trouble
from puffin_index.keys.columns import KeyArray
from puffin_index.keys.leaf import NullTest, SetTest
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.merge import rank_keys
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kinds_answering
from puffin_index.storage.arrays import Ints
from puffin_index.storage.files import READ_COUNT, ReadCount

_log = logging.getLogger(__name__)

_MOST_PAYLOADS = 1_000
"""Each payload takes a request or more."""

_ROWS_A_VALUE = 50
"""A function is evaluated for each row that is read, so one more evaluation for so many rows costs little."""

_FEW_VALUES = 4_096
"""So many values are tried for any number of rows."""

_MOST_VALUES = 1_048_576


@dataclass(frozen=True, slots=True)
class KeyRange:
    """All integers from the least to the greatest key, both included; the column need not have each of them."""

    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low + 1


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The least and the greatest key of a column that has too many keys for a list; keys are integers."""

    low: int
    high: int

    @property
    def fingerprint(self) -> str:
        """A text that other bounds and lists do not have."""
        return f"{self.low}...{self.high}"


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """A list of keys, ascending, that has every key of a column in some row groups. It may have other keys, too.

    Attributes:
        listed: The keys.
    """

    listed: KeyRange | KeyArray

    def __len__(self) -> int:
        return len(self.listed)

    @cached_property
    def keys(self) -> KeyArray:
        """The keys, one by one."""
        if isinstance(self.listed, KeyRange):
            return np.arange(self.listed.low, self.listed.high + 1, dtype=np.int64)
        return self.listed

    @cached_property
    def fingerprint(self) -> str:
        """A text that lists of other keys do not have."""
        if isinstance(self.listed, KeyRange):
            return f"{self.listed.low}..{self.listed.high}"
        digest = xxhash.xxh128()
        if isinstance(self.listed, np.ndarray):
            digest.update(self.listed.tobytes())
        else:
            for buffer in pa.concat_arrays([self.listed]).buffers()[1:]:
                digest.update(b"" if buffer is None else buffer)
        return f"{len(self)} {digest.hexdigest()}"


def values_to_try(
    view: IndexView, column: ColumnId, value_type: str, row_groups: Ints, byte_budget: int
) -> ColumnValues | KeyBounds | str:
    """Find the keys of a column if they are few enough for trying a condition on each.

    Args:
        view: The index.
        column: The column.
        value_type: Name of the column's type.
        row_groups: Row groups of the view, in each of which the column must have an index.
        byte_budget: How many bytes of payloads may be read. What is read counts in `READ_COUNT`.

    Returns:
        As `column_values`.
    """
    rows = int(view.row_counts[row_groups].sum())
    most = min(max(rows // _ROWS_A_VALUE, _FEW_VALUES), _MOST_VALUES)
    leaf = Leaf(column, NullTest(is_null=False), value_type)
    reads = IndexReads(READ_COUNT.get() or ReadCount())
    found = column_values(view, leaf, row_groups, most, byte_budget, reads)
    for trouble in reads.troubles:
        level = level_of_trouble(trouble.segment)
        _log.log(level, "values of a column not listed: %s: %s", trouble.segment, trouble.reason)
    return found


def column_values(
    view: IndexView, leaf: Leaf, row_groups: Ints, most: int, most_bytes: int, reads: IndexReads
) -> ColumnValues | KeyBounds | str:
    """Find the keys of a column.

    Statistics give the keys where the column has integers of a small range, and in row groups with a single key. Other
    keys are read from the payloads of indexes that list their keys.

    Args:
        view: The index.
        leaf: Any test of the column.
        row_groups: Row groups of the view, in each of which the column must have an index.
        most: How many keys the list may have.
        most_bytes: How many bytes of payloads may be read.
        reads: Counts what is read.

    Returns:
        The keys of all row groups of the view that have an index of the column. If these cannot be listed: the least
        and the greatest key of a column whose keys are integers, or else the reason.
    """
    statistics = view.statistics(leaf, reads)
    if statistics is None:
        return "the column has no index"
    if not statistics.known[row_groups].all():
        return "some row groups have no index of the column"
    bounds = None if statistics.bounds is None else KeyBounds(*statistics.bounds)
    if bounds is not None and bounds.high - bounds.low < most:
        return ColumnValues(KeyRange(bounds.low, bounds.high))
    if int(statistics.distinct_count[statistics.has_values].max(initial=0)) > most:
        return bounds or f"the column has more than {most} values"
    found = _Search(view, leaf, most, most_bytes, reads).union(statistics)
    return found if isinstance(found, ColumnValues) else bounds or found


@dataclass(frozen=True, slots=True)
class _Search:
    """Collects the keys of a column from several places."""

    view: IndexView
    leaf: Leaf
    most: int
    most_bytes: int
    reads: IndexReads

    def union(self, statistics: FieldStatistics) -> ColumnValues | str:
        """Return the keys of all row groups that have any, or the reason why some are not known."""
        single = np.flatnonzero(statistics.has_values & (statistics.distinct_count == 1))
        lists: list[KeyArray] = [_at(statistics.minimum, single)]
        missing = statistics.has_values & (statistics.distinct_count > 1)
        bytes_read = 0
        for kind in kinds_answering(SetTest(()), Answer.EXACT):
            directory = self.view.directory(self.leaf, kind.name, self.reads)
            here = np.flatnonzero(missing & directory.known) if directory is not None else ()
            if directory is None or not len(here):
                continue
            _, firsts = np.unique(directory.blob[here], return_index=True)
            payloads = here[firsts]
            bytes_read += int(directory.length[payloads].sum())
            if len(payloads) > _MOST_PAYLOADS or bytes_read > self.most_bytes:
                return f"the values of the column take more than {_MOST_PAYLOADS} requests or {self.most_bytes} bytes"
            read = self._read(directory, payloads)
            troubles = [one for one in read if isinstance(one, IndexTrouble)]
            if troubles:
                self.reads.troubles.extend(troubles)
                return "a part of the index cannot be read"
            lists += [one.keys for one in read if isinstance(one, KeyList)]
            listing = payloads[[isinstance(one, KeyList) for one in read]]
            missing &= ~np.isin(directory.blob, directory.blob[listing])
        if missing.any():
            return f"{np.count_nonzero(missing)} row groups have no index that lists at most {self.most} values"
        keys = _united(lists)
        return ColumnValues(keys) if len(keys) <= self.most else f"the column has more than {self.most} values"

    def _read(self, directory: KindDirectory, payloads: Ints) -> list[KeyList | IndexTrouble | None]:
        """Read the keys of payloads, each named by one of its row groups; None where a payload does not list them."""

        def read(row_group: int) -> KeyList | IndexTrouble | None:
            location = self.view.segments[int(directory.segment[row_group])][0]
            return or_trouble(location, lambda: self.view.keys_of(self.leaf.field_id, directory, row_group, self.most))

        return self.view.each(read, payloads.tolist())


def _at(keys: KeyArray, positions: Ints) -> KeyArray:
    return keys[positions] if isinstance(keys, np.ndarray) else keys.take(pa.array(positions))


def _united(lists: list[KeyArray]) -> KeyArray:
    numbers = [keys for keys in lists if isinstance(keys, np.ndarray)]
    if len(numbers) == len(lists):
        return np.unique(np.concatenate(numbers))
    return rank_keys([keys.cast(pa.large_binary()) for keys in lists if not isinstance(keys, np.ndarray)])[0]
