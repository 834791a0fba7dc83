"""The values that a column has in an index view, and tests that are decided over them: `upper(name) LIKE '%X%'`."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash
from pyiceberg.schema import Schema
from pyiceberg.types import MapType

from planner.clock import Clock
from planner.condition.as_sql import as_sql, column_text
from planner.condition.implied import Implied
from planner.condition.tree.nodes import EVERY_ROW, UNKNOWN, ByValue, Leaf, Part, Predicate, ValueTest
from planner.condition.tree.simplify import chosen, conjunction, disjunction, rebuilt, simplified
from planner.condition.value_tests import verdicts
from planner.condition.words import WordTest, satisfying, word_tests
from planner.view.directories import FieldStatistics, IndexReads
from planner.view.index_view import IndexView
from puffin_index.jobs.log_lines import level_of_trouble
from puffin_index.keys.columns import Column, KeyArray, chosen_keys, tuple_of_keys
from puffin_index.keys.leaf import NullTest, SetTest
from puffin_index.keys.map_key import ColumnId, Contents, MapKey, is_key
from puffin_index.keys.merge import rank_keys
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.words import words_of
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kinds_answering
from puffin_index.segments.directory import STATISTICS
from puffin_index.storage.arrays import Flags, Ints

_log = logging.getLogger(__name__)

_MOST_PAYLOADS: Final = 1_000
"""Each payload takes a request or more."""

_ROWS_A_VALUE: Final = 50
"""A function is evaluated for each row that is read, so one more evaluation for this many rows costs little."""

_FEW_VALUES: Final = 4_096
"""This many values are tried for any number of rows."""

_MOST_VALUES: Final = 1_048_576

_MOST_WORDS: Final = 8_388_608
"""A longer list of words takes more memory and time than the texts themselves are worth."""

_MOST_WORDS_OF_TEST: Final = 10_000
"""More words are likely in every row group."""

_MOST_TEXTS, _MOST_WORDS_OF_TEXT = 16, 8
"""Each such word is looked up by itself. A longer list of texts says little of words."""

_VALUES_BETWEEN_LOOKS = 65_536
"""The clock is asked after this many values. Arrow takes time by the length of pattern and text alone."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """All integers from the least to the greatest key of a column, both included; it need not have each of them."""

    low: int
    high: int

    @property
    def fingerprint(self) -> str:
        """A text that other ranges and lists do not have."""
        return f"{self.low}...{self.high}"


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """A list of keys, ascending, that has every key of a column in some row groups. It may have other keys, too."""

    listed: KeyRange | KeyArray

    def __len__(self) -> int:
        return self.listed.high - self.listed.low + 1 if isinstance(self.listed, KeyRange) else len(self.listed)

    @cached_property
    def keys(self) -> KeyArray:
        """The keys, one by one."""
        if isinstance(self.listed, KeyRange):
            return np.arange(self.listed.low, self.listed.high + 1, dtype=np.int64)
        return self.listed

    @cached_property
    def fingerprint(self) -> str:
        """A text that ranges and lists of other keys do not have."""
        if isinstance(self.listed, KeyRange):
            return f"{self.listed.low}..{self.listed.high}"
        digest = xxhash.xxh128()
        if isinstance(self.listed, np.ndarray):
            digest.update(self.listed.tobytes())
        else:
            for buffer in pa.concat_arrays([self.listed]).buffers()[1:]:
                digest.update(b"" if buffer is None else buffer)
        return f"{len(self)} {digest.hexdigest()}"


def column_values(
    view: IndexView, column: ColumnId, value_type: str, row_groups: Ints, most: int, most_bytes: int, reads: IndexReads
) -> ColumnValues | KeyRange | str:
    """Find the keys of a column, by at most `most_bytes` of payloads; `row_groups` all have an index of it.

    Statistics give the keys where the column has integers of a small range, and in row groups with a single key. Other
    keys are read from the payloads of indexes that list their keys. Returns at most `most` keys, of all indexed row
    groups of the view; if these cannot be listed, the range of integer keys, otherwise the reason.
    """
    statistics = view.statistics(column, value_type, reads)
    if statistics is None:
        return "the column has no index"
    if not statistics.known[row_groups].all():
        return "some row groups have no index of the column"
    bounds = None if statistics.bounds is None else KeyRange(*statistics.bounds)
    if bounds is not None and bounds.high - bounds.low < most:
        return ColumnValues(bounds)
    if int(statistics.distinct_count[statistics.has_values].max(initial=0)) > most:
        return bounds or f"the column has more than {most} values"
    lists = _lists(view, (column, value_type), statistics, most, most_bytes, reads)
    if isinstance(lists, str):
        return bounds or lists
    keys = _united(lists)
    return ColumnValues(keys) if len(keys) <= most else bounds or f"the column has more than {most} values"


def _lists(
    view: IndexView,
    column: tuple[ColumnId, str],
    statistics: FieldStatistics,
    most: int,
    most_bytes: int,
    reads: IndexReads,
    among: Flags | None = None,
) -> list[KeyArray] | str:
    """List the keys of the row groups that have a single one, and of each payload that is needed for the others.

    `among` says which row groups matter; None for all.
    """
    matters = statistics.has_values if among is None else statistics.has_values & among
    kinds = kinds_answering(SetTest(()), Answer.EXACT)
    directories = (view.directory(*column, kind.name, reads) for kind in kinds)
    single = np.flatnonzero(matters & (statistics.distinct_count == 1))
    lists: list[KeyArray] = [chosen_keys(statistics.minimum, single)]
    missing = matters & (statistics.distinct_count > 1)
    bytes_read = 0
    for directory in directories:
        here = np.flatnonzero(missing & directory.known) if directory is not None else ()
        if directory is None or not len(here):
            continue
        _, firsts = np.unique(directory.blob[here], return_index=True)
        payloads = here[firsts]
        unread = [at for at in payloads.tolist() if view.opened.kept(directory, at, "keys") is None]
        bytes_read += int(directory.length[unread].sum())
        if len(payloads) > _MOST_PAYLOADS or bytes_read > most_bytes:
            return f"the values of the column take more than {_MOST_PAYLOADS} requests or {most_bytes} bytes"
        read, troubles = partial(view.opened.keys_of, directory, most=most), len(reads.troubles)
        listed = view.opened.read_each(read, payloads.tolist(), directory.segment.__getitem__, reads)
        if len(reads.troubles) > troubles:
            return "a part of the index cannot be read"
        lists += [keys for keys in listed if keys is not None]
        listing = payloads[[keys is not None for keys in listed]]
        missing &= ~np.isin(directory.blob, directory.blob[listing])
    if missing.any():
        return f"{np.count_nonzero(missing)} row groups have no index that lists at most {most} values"
    return lists


def _united(lists: list[KeyArray]) -> KeyArray:
    if isinstance(lists[0], np.ndarray):
        return np.unique(np.concatenate(lists))
    return rank_keys([own.cast(pa.large_binary()) for own in lists if not isinstance(own, np.ndarray)])[0]


def _has_words(column: Contents, value_type: str, text: int | bytes) -> Predicate:
    """Say that rows have the words of a text: the longest ones, which are mostly the rarest."""
    words = sorted(words_of(pa.array([text], pa.binary())).unique().to_pylist(), key=len)[-_MOST_WORDS_OF_TEXT:]
    return conjunction([Leaf(column, SetTest((word,)), value_type) for word in words])


_Listing: TypeAlias = tuple[ColumnValues | KeyRange | str, float, int]
"""The values of a column, or why they are not listed; the seconds and the index bytes that listing them took."""


@dataclass(slots=True)
class ByValueTests(ABC):
    """Tests decided over the values of columns, read from so many bytes of payloads at most; and what was found."""

    schema: Schema
    view: IndexView
    row_groups: Ints
    byte_budget: int
    found: dict[ByValue, tuple[Predicate, Implied]] = field(init=False, default_factory=dict)
    _values: dict[tuple[ColumnId, str], _Listing] = field(init=False, default_factory=dict)

    @property
    def implied(self) -> tuple[Implied, ...]:
        """What the tests imply; complete once all of them are decided."""
        return tuple(implied for _, implied in self.found.values())

    def decide(self, leaf: ByValue) -> Predicate:
        """Say which values satisfy a test: exact if that is certain for all values of the column."""
        if isinstance(leaf.field_id, Contents):
            return self._words(leaf)
        if not self._can_evaluate(leaf):
            return UNKNOWN
        if leaf not in self.found:
            values, took, bytes_read = self._values_of(leaf.field_id, leaf.value_type)
            started = time.perf_counter()
            predicate, text, seconds = (
                (UNKNOWN, f"not used, {values}", 0.0) if isinstance(values, str) else self._evaluate(leaf, values)
            )
            seconds += took + time.perf_counter() - started
            text = f"{as_sql(leaf, self.schema)}: {text}"
            self.found[leaf] = predicate, Implied("function", text, seconds=seconds, bytes_read=bytes_read)
        return self.found[leaf][0]

    def decided(self, condition: Predicate) -> Predicate:
        """Return what a condition says of rows, with its tests by value decided and what follows of contents."""
        return self.with_contents(simplified(condition, self.decide))

    def with_contents(self, predicate: Predicate) -> Predicate:
        """Add what follows of the contents of columns that have no index of their own.

        A map in which a key satisfies a test has the key, and a value that satisfies the test. A text that is equal to
        another has its words.
        """
        return rebuilt(predicate, self._with_contents)

    def _with_contents(self, part: Part) -> Predicate:
        if not isinstance(part, Leaf) or self.view.has(part.field_id, STATISTICS, self.row_groups).all():
            return part
        return conjunction([part, *self._contained(part)])

    def _contained(self, leaf: Leaf) -> Iterator[Predicate]:
        match leaf:
            case Leaf(MapKey(field_id, key), test) if test != NullTest(is_null=True):
                keys, values = Contents(field_id, "keys"), Contents(field_id, "values")
                maps = self.schema.find_type(field_id)
                if self._is_indexed(keys) and isinstance(maps, MapType):
                    yield Leaf(keys, is_key(key, maps.key_type), str(maps.key_type))
                if self._is_indexed(values) and not isinstance(test, NullTest) and not test.negated:
                    yield replace(leaf, field_id=values)
            case Leaf(int(field_id), SetTest(texts, negated=False)) if len(texts) <= _MOST_TEXTS:
                words = Contents(field_id, "words")
                if self._is_indexed(words):
                    yield disjunction([_has_words(words, leaf.value_type, text) for text in texts])

    def _is_indexed(self, column: ColumnId) -> bool:
        return bool(self.view.has(column, STATISTICS, self.row_groups).any())

    def _values_of(self, column: ColumnId, value_type: str) -> _Listing:
        key = column, value_type
        if key not in self._values:
            started, reads = time.perf_counter(), IndexReads()
            rows = int(self.view.row_counts[self.row_groups].sum())
            most = min(max(rows // _ROWS_A_VALUE, _FEW_VALUES), _MOST_VALUES)
            values = self._objection(value_type) or column_values(
                self.view, column, value_type, self.row_groups, most, self.byte_budget, reads
            )
            for trouble in reads.troubles:
                level = level_of_trouble(trouble.segment)
                _log.log(level, "values of a column not listed: %s: %s", trouble.segment, trouble.reason)
            self._values[key] = values, time.perf_counter() - started, reads.count.bytes
        return self._values[key]

    def _words(self, leaf: ByValue) -> Predicate:
        """Say which words the texts have that satisfy a test, as far as an index of words is worth it."""
        opening = IndexReads()
        statistics = self.view.statistics(leaf.field_id, leaf.value_type, opening)
        if statistics is None:
            return EVERY_ROW
        if leaf not in self.found:
            assert isinstance(leaf.test, ValueTest)
            started, reads = time.perf_counter(), IndexReads()
            decided: list[tuple[Predicate, str]] = [(EVERY_ROW, "not used, a part of the index cannot be read")]
            # The lists would lack the words of a segment that was in trouble.
            if not opening.troubles:
                decided = [self._word(leaf, test, statistics, reads) for test in word_tests(leaf.test)]
            texts = " AND ".join(text for _, text in decided) or "it says no word"
            text = f"{as_sql(leaf, self.schema)}: {texts}"
            implied = Implied("words", text, seconds=time.perf_counter() - started, bytes_read=reads.count.bytes)
            self.found[leaf] = conjunction([found for found, _ in decided]), implied
        return self.found[leaf][0]

    def _word(
        self, leaf: ByValue, test: WordTest, statistics: FieldStatistics, reads: IndexReads
    ) -> tuple[Predicate, str]:
        """Say what a test of a word says of rows, and the same as text."""
        if not isinstance(test, ValueTest):
            own = Leaf(leaf.field_id, test, leaf.value_type)
            return own, as_sql(own, self.schema)
        asked = f"a word {as_sql(replace(leaf, test=test), self.schema)}"
        # As at the gate, an index byte counts a quarter of a data byte, and a query reads a quarter of a row group.
        worth = min(self.byte_budget, int(self.view.row_group_bytes[self.row_groups].sum()))
        among = np.zeros(len(statistics.known), np.bool_)
        among[self.row_groups] = True
        # Lists are by payload: a word may be in several of them.
        lists = _lists(self.view, (leaf.field_id, leaf.value_type), statistics, _MOST_WORDS, worth, reads, among)
        if isinstance(lists, str):
            return EVERY_ROW, f"{asked} (not used, {lists})"
        found = _united([chosen_keys(words, satisfying(test, words)) for words in lists])
        text = f"{asked} ({len(found)} words of {sum(map(len, lists))})"
        if len(found) > _MOST_WORDS_OF_TEST:
            return EVERY_ROW, text
        return Leaf(leaf.field_id, SetTest(tuple_of_keys(found)), leaf.value_type), text

    @abstractmethod
    def _can_evaluate(self, leaf: ByValue) -> bool:
        """Whether the evaluator knows such a test."""

    @abstractmethod
    def _objection(self, value_type: str) -> str:
        """Why the values of a column are not to be listed; empty if there is no reason."""

    @abstractmethod
    def _evaluate(self, leaf: ByValue, values: ColumnValues | KeyRange) -> tuple[Predicate, str, float]:
        """Return what a test says of rows, the same as text, and the seconds that the evaluation took elsewhere."""


@dataclass(slots=True)
class TriedValues(ByValueTests):
    """Tests that Arrow evaluates, as long as the clock allows."""

    clock: Clock

    def _can_evaluate(self, leaf: ByValue) -> bool:
        return isinstance(leaf.test, ValueTest)

    def _objection(self, value_type: str) -> str:  # noqa: ARG002 - Spark's evaluator needs it
        return "the time that planning may take was over" if self.clock.is_over else ""

    def _evaluate(self, leaf: ByValue, values: ColumnValues | KeyRange) -> tuple[Predicate, str, float]:
        if isinstance(values, KeyRange):
            return UNKNOWN, "not used, the column has too many values", 0.0
        assert isinstance(leaf.test, ValueTest)
        value_type = value_type_named(leaf.value_type)
        matching, certain = np.ones(len(values), np.bool_), np.zeros(len(values), np.bool_)
        for first in range(0, len(values), _VALUES_BETWEEN_LOOKS):
            if self.clock.is_over:
                break
            some = slice(first, first + _VALUES_BETWEEN_LOOKS)
            keys = values.keys[some]
            matching[some], certain[some] = verdicts(leaf.test, Column(value_type, len(keys), keys, None))
        places = np.flatnonzero(matching)
        predicate = chosen(leaf.field_id, values.keys, places, value_type)
        uncertain = int(np.count_nonzero(~certain))
        note = f", {uncertain} of which only Spark can decide" if uncertain else ""
        text = f"{column_text(leaf.field_id, self.schema)} in {len(places)} of {len(values)} values{note}"
        return conjunction([predicate, UNKNOWN]) if uncertain else predicate, text, 0.0
