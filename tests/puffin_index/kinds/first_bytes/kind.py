"""A kind that only the tests know: for each row group the set of the first bytes of its strings.

A payload has 256 bits for each row group that it covers: bit b says that a value begins with byte b. The empty string
has bit 0. NULL has none.
"""
# ruff: noqa: ARG002 - a kind is given more than this one needs

from collections.abc import Iterator, Sequence

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import LeafTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import (
    LookUp,
    MergePart,
    OpenIndex,
    Payload,
    RowSet,
    StoredPayload,
)
from puffin_index.kinds.kind import Answer, IndexKind, Options, Proof
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import Blob, Reading, run

SINGLE = "test-first-bytes-v1"
MERGED = "test-merged-first-bytes-v1"
_SET_BYTES = 32
_NO_LAYOUT = np.empty(0, np.int64)


def asked_bytes(test: LeafTest) -> Flags:
    """Which first bytes a value that satisfies a test may have: shape (256,)."""
    asked = np.zeros(256, np.bool_)
    match test:
        case SetTest(keys):
            asked[[key[0] if key else 0 for key in keys]] = True
        case RangeTest(low, high):
            asked[low[0] if low else 0 : (high[0] if high else 0) + 1 if high is not None else 256] = True
    return asked


def read_sets(blob: Blob, row_groups: int) -> Reading[Flags]:
    """The sets of some row groups: shape (row groups, 256)."""
    if blob.length != _SET_BYTES * row_groups:
        raise corrupt(blob, f"{blob.length} bytes for the first bytes of {row_groups} row groups")
    (data,) = yield [(blob, (0, blob.length))]
    bits = np.frombuffer(data, np.uint8).reshape(row_groups, _SET_BYTES)
    return np.unpackbits(bits, axis=1, bitorder="little").view(np.bool_)


class FirstBytes(OpenIndex):
    def __init__(self, payload: StoredPayload) -> None:
        self._blob = payload.blob
        self._spans = payload.spans

    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        yield from ()

        def rows(candidates: BitMap | None) -> Reading[RowSet]:
            sets = yield from read_sets(self._blob, len(self._spans))
            spans = self._spans[(sets & asked_bytes(asked.test)).any(axis=1)].tolist()
            found = BitMap.union(BitMap(), *(BitMap(range(base, base + count)) for base, count in spans))
            found = found if candidates is None else found & candidates
            return RowSet(found, not found)

        return LookUp((0, int(self._spans[:, 1].sum())), (1, self._blob.length), rows)

    def sets(self) -> Flags:
        return run(read_sets(self._blob, len(self._spans)))


class FirstBytesKind(IndexKind):
    """Row groups without a value that begins like a wanted one are dropped."""

    name = "first-bytes"
    blob_types = frozenset({SINGLE})
    merged_types = frozenset({MERGED})
    option_names = frozenset({"colour"})
    bytes_per_row = 1

    def check(self, value_type: ValueType, options: Options) -> None:
        super().check(value_type, options)
        if value_type.name != "string":
            raise DefinitionError(f"kind first-bytes has no {value_type.name} columns")

    def misfits(self, value_type: ValueType, options: Options) -> Iterator[str]:
        if options.get("colour") == "grey":
            yield "first-bytes in grey hardly shows"

    def build(self, column: SortedColumn, options: Options) -> Payload:
        return Payload(SINGLE, np.packbits(_set_of(column), bitorder="little").tobytes(), _NO_LAYOUT)

    def open(self, payload: StoredPayload) -> OpenIndex:
        if payload.blob_type not in self.every_type:
            raise UnsupportedError(f"{payload.blob.location}: kind first-bytes reads no blob {payload.blob_type}")
        return FirstBytes(payload)

    def answers(self, test: LeafTest) -> Answer:
        return Answer.UPPER_BOUND if isinstance(test, SetTest | RangeTest) and not test.negated else Answer.NONE

    def merge(self, parts: Sequence[MergePart], options: Options) -> Iterator[Payload]:
        kept = [part for part in parts if part.is_kept.any()]
        sets = [FirstBytes(part.payload).sets()[part.is_kept] for part in kept]
        if sets:
            every = np.concatenate(sets)
            yield Payload(MERGED, np.packbits(every, axis=1, bitorder="little").tobytes(), _NO_LAYOUT, len(every))

    def proof(self, opened: OpenIndex, row_counts: Ints) -> Proof:
        def prove(place: int, column: SortedColumn) -> Iterator[str]:
            assert isinstance(opened, FirstBytes)
            if (_set_of(column) & ~opened.sets()[place]).any():
                yield "a first byte is missing"

        return prove


def _set_of(column: SortedColumn) -> Flags:
    found = np.zeros(256, np.bool_)
    found[[key[0] if key else 0 for key in column.keys.to_pylist()]] = True
    return found
