"""Build a bloom matrix from the bloom filters of row groups, and from other matrices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from puffin_index.kinds.base import Payload
from puffin_index.kinds.bloom.filter import bit_positions
from puffin_index.kinds.bloom.matrix import BLOOM_MATRIX, DIRECTORY_HEADER, DIRECTORY_VERSION, MATRIX_ENTRY, BloomMatrix
from puffin_index.storage.arrays import Bytes, Ints
from puffin_index.storage.bit_transpose import transpose_bits
from puffin_index.storage.hashing import xxh64_many
from puffin_index.storage.parts import CHECKSUM_BYTES, LAYOUT_VERSION, checksum32

PAGE_BYTES = 4 * 1024
"""The most bytes of a page with several rows. Pages are small because a look-up reads k pages for one row each."""
_GROWTH = 0.25
"""The share by which copies of filters, made for fewer matrices, may enlarge the blob."""

Shape = tuple[int, int]
"""The number of bits that a key sets, and of bits of the filter."""


@dataclass(frozen=True, slots=True, eq=False)
class BloomBits:
    """The bloom filter of one row group.

    Attributes:
        k: The number of bits that a key sets.
        bits: The bits: bit `i & 7` of byte `i >> 3`.
    """

    k: int
    bits: Bytes

    @property
    def shape(self) -> Shape:
        """The shape of the filter."""
        return self.k, 8 * len(self.bits)

    def contains_all(self, hashes: Ints) -> bool:
        """Return whether the filter has the keys of all these hashes."""
        positions = np.concatenate(list(bit_positions(hashes, *self.shape)))
        return bool((self.bits[positions >> 3] >> (positions & 7).astype(np.uint8) & 1).all())


def filters_of_matrix(matrix: BloomMatrix) -> list[BloomBits]:
    """Return the filters of a blob, in the order of the row groups.

    Raises:
        CorruptFileError: If the blob is damaged.
    """
    directory = matrix.directory
    filters: dict[int, BloomBits] = {}
    for number, one in enumerate(directory.matrices):
        rows = matrix.read_matrix(number)
        padded = np.zeros((-(-one.bits // 8) * 8, one.row_bytes), np.uint8)
        padded[: one.bits] = rows
        columns = transpose_bits(padded)
        filters |= {
            row_group: BloomBits(one.k, columns[place])
            for place, row_group in enumerate(directory.row_groups(number).tolist())
        }
    return [filters[row_group] for row_group in sorted(filters)]


def build_bloom_matrix(filters: Sequence[BloomBits], form: int) -> Payload:
    """Build the payload of the filters of some row groups.

    Args:
        filters: The filter of each row group, in order.
        form: The stored form of the hashed values (`puffin_index.keys.stored_form`).
    """
    members: dict[Shape, list[int]] = defaultdict(list)
    for row_group, one in enumerate(filters):
        members[one.shape].append(row_group)
    merged = _in_fewer(members)
    entries = np.zeros(len(merged), MATRIX_ENTRY)
    matrix_of = np.zeros(len(filters), "<u2")
    data: list[Bytes] = []
    for number, ((k, bits), row_groups) in enumerate(sorted(merged.items())):
        ordered = sorted(row_groups)
        matrix_of[ordered] = number
        page_rows = max(1, PAGE_BYTES // ((len(ordered) + 7) // 8))
        entries[number] = (k, len(ordered), bits, page_rows, 0)
        data.append(_paged(_stacked([filters[place].bits for place in ordered], bits), page_rows))
    header = np.array([(DIRECTORY_VERSION, len(entries))], DIRECTORY_HEADER)
    directory = header.tobytes() + entries.tobytes() + matrix_of.tobytes()
    directory_from = sum(len(matrix) for matrix in data)
    layout = [LAYOUT_VERSION, form, len(filters), directory_from, checksum32(directory)]
    content = b"".join((*(matrix.data for matrix in data), directory))
    return Payload(BLOOM_MATRIX, content, np.array(layout, np.int64))


def _in_fewer(members: dict[Shape, list[int]]) -> dict[Shape, list[int]]:
    """Move filters into matrices of a multiple of their bits, cheapest first, within the limit of growth.

    A look-up takes requests for each matrix, so fewer matrices are worth some repeated bits.
    """
    merged = {shape: list(row_groups) for shape, row_groups in members.items()}
    budget = _GROWTH * sum(bits * len(row_groups) for (_, bits), row_groups in merged.items())
    while True:
        moves = [
            ((to[1] - shape[1]) * len(row_groups), shape, to)
            for shape, row_groups in merged.items()
            for to in merged
            if to[0] == shape[0] and to[1] > shape[1] and to[1] % shape[1] == 0
        ]
        growth, shape, to = min(moves, default=(0, (0, 0), (0, 0)))
        if not moves or growth > budget:
            return merged
        budget -= growth
        merged[to] += merged.pop(shape)


def _stacked(filters: Sequence[Bytes], bits: int) -> Bytes:
    """Return filters as rows, each repeated to fill its row; empty rows make the number of rows a multiple of 8."""
    stacked = np.zeros((-(-len(filters) // 8) * 8, bits // 8), np.uint8)
    for place, one in enumerate(filters):
        stacked[place].reshape(-1, len(one))[:] = one
    return stacked


def _paged(filters: Bytes, page_rows: int) -> Bytes:
    """Transpose filters to the rows of a matrix; return the rows in pages with seals."""
    rows = transpose_bits(filters)
    page_bytes = page_rows * rows.shape[1]
    flat = rows.reshape(-1)
    starts = np.arange(0, len(flat), page_bytes)
    lengths = np.diff(starts, append=len(flat))
    seals = (xxh64_many(flat, starts, lengths) & np.uint64(0xFFFF_FFFF)).astype("<u4").view(np.uint8)
    seals = seals.reshape(-1, CHECKSUM_BYTES)
    data = np.empty(len(flat) + seals.size, np.uint8)
    whole = len(flat) // page_bytes
    pages = data[: whole * (page_bytes + CHECKSUM_BYTES)].reshape(whole, page_bytes + CHECKSUM_BYTES)
    pages[:, :page_bytes] = flat[: whole * page_bytes].reshape(whole, page_bytes)
    pages[:, page_bytes:] = seals[:whole]
    if whole < len(starts):
        data[pages.size :] = np.concatenate((flat[whole * page_bytes :], seals[-1]))
    return data
