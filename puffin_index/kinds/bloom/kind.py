"""The kind `bloom`: tells which row groups certainly lack a key.

Options: `items` and `fpp` as in Paimon. The default of `items` is the number of distinct keys, or 2.6 times that number
if `fpp` is left out as well. Without `items`, the number of bits is rounded up to 4, 5, 6 or 7 times a power of two and
to a multiple of 64, so that row groups with similar numbers of keys have filters of one size. The default of `fpp` is
0.1.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import LeafTest, SetTest
from puffin_index.keys.map_key import CONTENT
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import (
    MERGED_BYTES,
    MergePart,
    OpenIndex,
    Payload,
    StoredPayload,
    as_it_was,
    merge_no_larger,
    runs_of,
)
from puffin_index.kinds.bloom.filter import PAIMON_BLOOM, BloomBits, BloomIndex, build_filter, key_hashes
from puffin_index.kinds.bloom.matrix import BLOOM_MATRIX, BloomMatrix, build_bloom_matrix
from puffin_index.kinds.kind import Answer, IndexKind, Options, Proof
from puffin_index.storage.arrays import Ints
from puffin_index.storage.parts import check_layout

PAIMON_FPP = 0.1
# With this factor on the number of keys, Paimon's shape for 10 % (three bits set per key) errs for 1 % of keys. Seven
# bits per key would shrink the filter by a quarter, but each further bit lies on another page: one more request.
ROOM = 2.6
_LARGE_FPP = 0.3
_PROBED_BYTES = 16 * 1024
"""The approximate bytes of looking up one key in one filter: some pages of a large filter."""


class BloomKind(IndexKind):
    """A bloom filter of the distinct keys, sized by their number unless options give the size."""

    name = "bloom"
    blob_types = frozenset({PAIMON_BLOOM})
    merged_types = frozenset({BLOOM_MATRIX})
    option_names = frozenset({CONTENT, "fpp", "items"})
    bytes_per_row = 2
    paimon_name = "bloom-filter"
    paimon_types = frozenset({PAIMON_BLOOM})

    def check(self, value_type: ValueType, options: Options) -> None:
        """Raise `DefinitionError` if an option is unknown or its value is out of range."""
        super().check(value_type, options)
        _fpp(options, value_type)
        _items(options, value_type)

    def takes_contents(self, options: Options) -> bool:
        """Hash the keys of a row group, of whichever rows they are."""
        del options
        return True

    def misfits(self, value_type: ValueType, options: Options) -> Iterator[str]:
        """Name types that do not suit filters, and options that let too many keys pass."""
        if value_type.name == "boolean":
            yield "a bloom filter of two values says no more than minimum and maximum; use bitmap"
        elif value_type.is_floating:
            yield f"bloom answers only = and IN, which few ask of a {value_type.name} column; use bsi"
        if "fpp" in options and float(options["fpp"]) >= _LARGE_FPP:
            yield f"bloom with fpp={options['fpp']} lets that share of the row groups through; 0.1 or less is usual"

    def build(self, column: SortedColumn, options: Options) -> Payload:
        """Build the filter of one row group."""
        value_type = column.column.value_type
        self.check(value_type, options)
        room = 1.0 if "fpp" in options else ROOM
        return build_filter(column, _items(options, value_type), _fpp(options, value_type), room)

    def open(self, payload: StoredPayload) -> BloomIndex | BloomMatrix:
        """Open a filter or a matrix."""
        if payload.blob_type == BLOOM_MATRIX:
            return BloomMatrix(payload)
        if payload.blob_type != PAIMON_BLOOM:
            raise UnsupportedError(f"{payload.blob.location}: kind bloom reads no blob {payload.blob_type}")
        return BloomIndex(payload)

    def answers(self, test: LeafTest) -> Answer:
        """Answer only tests for keys, with an upper bound."""
        return Answer.UPPER_BOUND if isinstance(test, SetTest) and not test.negated else Answer.NONE

    def cost(self, test: LeafTest, lengths: Ints) -> Ints:
        """Estimate some pages per key."""
        keys = len(test.keys) if isinstance(test, SetTest) else 1
        return np.minimum(lengths, _PROBED_BYTES * max(1, keys))

    def merge(self, parts: Sequence[MergePart], options: Options) -> Iterator[Payload]:
        """Merge filters of values of one form to matrices."""
        del options
        for run in runs_of(self.kept_parts(parts), lambda part: _value_form(part.payload), MERGED_BYTES):
            yield from merge_no_larger(run, self._together)

    def _together(self, run: Sequence[MergePart]) -> list[Payload]:
        if len(run) == 1 and run[0].is_kept.all():
            return [as_it_was(run[0])]
        filters: list[BloomBits] = []
        for part in run:
            every = self.open(part.payload).filters()
            filters += [every[place] for place in np.flatnonzero(part.is_kept).tolist()]
        return [build_bloom_matrix(filters, _value_form(run[0].payload))]

    def proof(self, opened: OpenIndex, row_counts: Ints) -> Proof:
        """Prove a filter by looking up every key of its row group."""
        del row_counts
        assert isinstance(opened, BloomMatrix | BloomIndex)
        filters, form = opened.filters(), opened.form

        def prove(place: int, column: SortedColumn) -> Iterator[str]:
            if not filters[place].contains_all(key_hashes(column.keys, form)):
                yield "the bloom filter misses a value"

        return prove


def _value_form(payload: StoredPayload) -> int:
    """Return the stored form of the hashed values, which is the second number in the layout of both blob types."""
    return check_layout(payload.blob, payload.layout, 2)[1]


def _fpp(options: Options, value_type: ValueType) -> float:
    text = options.get("fpp")
    try:
        fpp = PAIMON_FPP if text is None else float(text)
    except ValueError:
        fpp = math.nan
    if not 0 < fpp < 1:
        raise DefinitionError(f"bloom option fpp={text} of a {value_type.name} column is not between 0 and 1")
    return fpp


def _items(options: Options, value_type: ValueType) -> int | None:
    text = options.get("items")
    if text is None:
        return None
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise DefinitionError(f"bloom option items={text} of a {value_type.name} column is not a positive number")
    return int(text)
