"""The blob type `paimon-bloom-v1`: a filter that tells which keys a row group certainly lacks.

The format and the hashes are in docs/payloads.md, Bloom filter; source: seed 002.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash
from pyroaring import BitMap

from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import KeyArray, SortedColumn
from puffin_index.keys.leaf import SetTest
from puffin_index.keys.value_types import FLOAT32, FLOAT64, check_form, form_of, from_stored, to_stored
from puffin_index.kinds.base import LookUp, OpenIndex, Payload, RowSet, StoredPayload
from puffin_index.storage.arrays import Bytes, Flags, Ints, Rows
from puffin_index.storage.binary import write_int32_be
from puffin_index.storage.parts import LAYOUT_VERSION, Part, check_layout, checksum32, corrupt, parts_of
from puffin_index.storage.ranged import Blob, Reading, at_once, run

PAIMON_BLOOM = "paimon-bloom-v1"
BITS_OFFSET = 4
MAXIMUM_BITS = 2**31 - 8
MAXIMUM_BITS_A_KEY = 64
_WHOLE_BYTES = 64 * 1024
_LEAST_PAGE_BYTES = 4 * 1024
_MOST_PAGES = 128
_LAYOUT_NUMBERS = 4
_KEYS_AT_ONCE = 32 * 1024


def key_hashes(keys: KeyArray, form: int) -> Ints:
    """Return the 64-bit hashes of keys as values of a stored form."""
    if not isinstance(keys, np.ndarray):
        return np.fromiter(map(xxhash.xxh64_intdigest, keys.to_pylist()), np.uint64, len(keys)).view(np.int64)
    if form == FLOAT32:
        return wang_hashes(to_stored(keys, form).view(np.int32).astype(np.int64))
    return wang_hashes(to_stored(keys, form).view(np.int64) if form == FLOAT64 else keys)


def wang_hashes(numbers: Ints) -> Ints:
    """Return Thomas Wang's 64-bit hash of each number, with arithmetic shifts to the right (seed 002)."""
    key: Ints = numbers << np.int64(21)
    key += ~numbers
    shifted = key >> np.int64(24)
    key ^= shifted
    key *= np.int64(265)
    np.right_shift(key, np.int64(14), out=shifted)
    key ^= shifted
    key *= np.int64(21)
    np.right_shift(key, np.int64(28), out=shifted)
    key ^= shifted
    key *= np.int64(1 + (1 << 31))
    return key


def hashes_of_keys(keys: tuple[int, ...] | tuple[bytes, ...], form: int) -> Ints:
    """Return the hashes of those keys that a stored form can represent."""
    if not keys:
        return np.empty(0, np.int64)
    is_int = isinstance(keys[0], int)
    hashes = key_hashes(np.array(keys, np.int64) if is_int else pa.array(keys, pa.large_binary()), form)
    if form == FLOAT32:  # a key that no float represents must not match the float it rounds to
        asked = np.array(keys, np.int64)
        hashes = hashes[from_stored(to_stored(asked, FLOAT32), FLOAT32) == asked]
    return hashes


def filter_shape(items: int, fpp: float) -> tuple[int, int]:
    """Return the number of bits of a filter, and of bits that a key sets, by the formulas of seed 002."""
    needed = int(min(-items * math.log(fpp) / math.log(2) ** 2, MAXIMUM_BITS - 8))
    bits = needed + 8 - needed % 8
    return bits, min(max(1, math.floor(bits / items * math.log(2) + 0.5)), MAXIMUM_BITS_A_KEY)


def grid_bits(bits: int) -> int:
    """Return the least multiple of 64 that is not below `bits` and is 4, 5, 6 or 7 times a power of two.

    Row groups with similar numbers of distinct keys then have filters of one size, which fit into one matrix.
    """
    unit = 64 if bits <= 256 else 1 << (bits - 1).bit_length() - 3
    return min(-(-bits // unit) * unit, MAXIMUM_BITS)


def bit_positions(hashes: Ints, k: int, bits: int) -> Iterator[Rows]:
    """Yield, k times, the next bit that each hash sets."""
    combined, step = hashes.astype(np.int32), (hashes >> np.int64(32)).astype(np.int32)
    count = np.uint32(bits)
    for _ in range(k):
        combined += step
        positions = (combined ^ (combined >> np.int32(31))).view(np.uint32)
        positions -= (positions // count) * count  # numpy divides fast by a single number, but is slow at remainders
        yield positions


Shape = tuple[int, int]
"""The number of bits that a key sets, and of bits of the filter."""


@dataclass(frozen=True, slots=True, eq=False)
class BloomBits:
    """The bloom filter of one row group: k bits a key; bit i is bit `i & 7` of byte `i >> 3`."""

    k: int
    bits: Bytes

    @property
    def shape(self) -> Shape:
        """The shape of the filter."""
        return self.k, 8 * len(self.bits)

    def contains_all(self, hashes: Ints) -> bool:
        """Return whether the filter has the keys of all these hashes."""
        return all(
            bool((self.bits[positions >> 3] >> (positions & 7).astype(np.uint8) & 1).all())
            for positions in bit_positions(hashes, *self.shape)
        )


class BloomIndex(OpenIndex):
    """Answers set tests from a filter: exactly if no key can be in the row group, else with an upper bound.

    Raises UnsupportedError for another version or type, CorruptFileError if the layout contradicts the blob.
    """

    def __init__(self, payload: StoredPayload) -> None:
        blob = payload.blob
        self._row_count = payload.row_count
        bit_bytes = blob.length - BITS_OFFSET
        if not 0 < bit_bytes <= MAXIMUM_BITS // 8:
            raise corrupt(blob, f"a bloom filter of {blob.length} bytes")
        _, form, k, page_bytes, *packed = check_layout(blob, payload.layout, _LAYOUT_NUMBERS)
        check_form(form, payload.value_type, blob.location)
        if not 0 < k <= MAXIMUM_BITS_A_KEY or page_bytes < 1:
            raise corrupt(blob, f"a bloom filter of {k} bits a key, {page_bytes} bytes a page")
        self._blob = blob
        self.form = form
        self._bit_count = 8 * bit_bytes
        self._k = k
        self._pages = _pages(blob, bit_bytes, page_bytes, np.array(packed, ">i8").view(">u4").tolist())
        self._read: dict[int, Bytes] = {}

    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        """Prepare a test; nothing is read for that."""
        test = asked.test

        def rows(candidates: BitMap | None) -> Reading[RowSet]:
            every = BitMap(range(self._row_count)) if candidates is None else candidates.copy()
            if every and isinstance(test, SetTest) and not test.negated:
                may_match = yield from self._may_contain(test.keys)
                every = every if may_match else BitMap()
            return RowSet(every, not every)

        return at_once(LookUp((0, self._row_count), (1, self._blob.length), rows))

    def _may_contain(self, keys: tuple[int, ...] | tuple[bytes, ...]) -> Reading[bool]:
        hashes = hashes_of_keys(keys, self.form)
        possible = np.ones(len(hashes), np.bool_)
        for positions in bit_positions(hashes, self._k, self._bit_count):
            possible[possible] = yield from self._bits_at(positions[possible])
            if not possible.any():
                return False
        return True

    def filters(self) -> list[BloomBits]:
        """Return the whole filter, the only one, after checking the checksums of its pages."""
        return [BloomBits(self._k, np.frombuffer(b"".join(run(parts_of(self._blob, self._pages))), np.uint8))]

    def _bits_at(self, positions: Rows) -> Reading[Flags]:
        page_bytes = self._pages[0].length
        places = positions >> 3
        pages = places // page_bytes
        missing = sorted(set(pages.tolist()) - self._read.keys())
        contents = yield from parts_of(self._blob, [self._pages[page] for page in missing])
        for page, data in zip(missing, contents, strict=True):
            self._read[page] = np.frombuffer(data, np.uint8)
        found = np.empty(len(positions), np.uint8)
        for page in np.unique(pages).tolist():
            here = pages == page
            found[here] = self._read[page][places[here] - page * page_bytes]
        bits: Flags = (found >> (positions & 7).astype(np.uint8)) & np.uint8(1) != 0
        return bits


def build_filter(column: SortedColumn, items: int | None, fpp: float, room: float) -> Payload:
    """Build the filter of a row group, sized for `items` keys, or for `room` times its distinct keys.

    A filter that holds its planned number of keys reports a share of `fpp` of absent keys as present.
    """
    keys = column.keys
    form = form_of(column.column.value_type)
    bit_count, k = filter_shape(items or max(math.ceil(room * len(keys)), 1), fpp)
    bit_count = bit_count if items else grid_bits(bit_count)
    data = bytearray(BITS_OFFSET + bit_count // 8)
    data[:BITS_OFFSET] = write_int32_be(k)
    bits = np.frombuffer(memoryview(data)[BITS_OFFSET:], np.uint8)
    _set_bits(bits, keys, form, k)
    # A small filter is one page, a large filter has at most 128 pages.
    page_bytes = len(bits)
    if page_bytes > _WHOLE_BYTES:
        page_bytes = max(_LEAST_PAGE_BYTES, 1 << (-(-page_bytes // _MOST_PAGES) - 1).bit_length())
    checksums = [checksum32(bits[start : start + page_bytes].data) for start in range(0, len(bits), page_bytes)]
    pairs = [*checksums, 0][: len(checksums) + len(checksums) % 2]
    layout = [LAYOUT_VERSION, form, k, page_bytes, *np.array(pairs, ">u4").view(">i8").tolist()]
    return Payload(PAIMON_BLOOM, data, np.array(layout, np.int64))


def _set_bits(bits: Bytes, keys: KeyArray, form: int, k: int) -> None:
    # A limited number of keys at a time keeps their hashes and positions in the processor's cache.
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        hashes = key_hashes(keys[start : start + _KEYS_AT_ONCE], form)
        for positions in bit_positions(hashes, k, 8 * len(bits)):
            masks = positions.astype(np.uint8)
            masks &= np.uint8(7)
            np.left_shift(np.uint8(1), masks, out=masks)
            places = (positions >> np.uint32(3)).astype(np.intp)
            changed = bits[places]
            changed |= masks
            bits[places] = changed
            # Of several positions in one byte this assignment sets only the last. A slower pass sets the lost bits,
            # which are few, as a filter has more bytes than keys.
            changed = bits[places]
            changed &= masks
            lost = np.flatnonzero(changed == 0)
            np.bitwise_or.at(bits, places[lost], masks[lost])


def _pages(blob: Blob, bit_bytes: int, page_bytes: int, checksums: Sequence[int]) -> list[Part]:
    starts = range(0, bit_bytes, page_bytes)
    if len(checksums) - len(starts) not in (0, 1):
        raise corrupt(blob, f"{len(checksums)} checksums for {len(starts)} pages")
    return [
        Part(BITS_OFFSET + start, min(page_bytes, bit_bytes - start), checksum)
        for start, checksum in zip(starts, checksums, strict=False)
    ]
