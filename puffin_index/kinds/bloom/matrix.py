"""The blob type `puffin-index-bloom-matrix-v1`: the bloom filters of many row groups, read by bit for all of them.

All numbers are little-endian.

| part | meaning |
| --- | --- |
| matrices | one after the other |
| directory | what follows, up to the end of the blob |

The filters of a matrix have as many bits, m, and set as many for a key, k. Row i of a matrix has bit i of each of its
n filters: that of filter j is bit `j & 7` of byte `j >> 3` of the ceil(n / 8) bytes. Rows lie in pages of p rows, the
last may have fewer. A page is followed by a seal of 4 bytes: the low half of the xxh64 of its rows.

| part of the directory | bytes | meaning |
| --- | --- | --- |
| version | 4 | 1 |
| matrices | 4 | t, the number of matrices |
| matrix | 24 t | for each k (4), n (4), m (8), p (4), 0 (4) |
| row groups | 2 g | for each row group its matrix; its filter is the next one there |

A key's bits are those of `paimon-bloom-v1` (`puffin_index.kinds.bloom.kind`). A filter may stand in a matrix as itself
several times over, in as many times its bits: x mod m tells what (x mod 2 m) mod m does.

Layout: `[1, form, row groups, where the directory begins, low half of its xxh64]`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from puffin_index.errors import UnsupportedError
from puffin_index.keys.asked_test import AskedTest
from puffin_index.keys.leaf import SetTest
from puffin_index.keys.stored_form import is_form_of
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import MergedFilter
from puffin_index.kinds.bloom.filter import MAXIMUM_BITS, MAXIMUM_BITS_A_KEY, bit_positions, hashes_of_keys
from puffin_index.storage.arrays import Bytes, Flags, Ints
from puffin_index.storage.hashing import xxh64_many
from puffin_index.storage.parts import (
    CHECKSUM_BYTES,
    COALESCE_BYTES,
    Part,
    check_layout,
    checksum32,
    corrupt,
    read_parts,
)
from puffin_index.storage.ranged import Blob

BLOOM_MATRIX = "puffin-index-bloom-matrix-v1"
DIRECTORY_VERSION = 1
DIRECTORY_HEADER = np.dtype([("version", "<u4"), ("matrices", "<u4")])
MATRIX_ENTRY = np.dtype([("k", "<u4"), ("filters", "<u4"), ("bits", "<u8"), ("page_rows", "<u4"), ("zero", "<u4")])
_LAYOUT_NUMBERS = 5
_BYTES_AT_ONCE = 16 * 1024 * 1024
_OBJECT_BYTES = 200


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix of a blob.

    Attributes:
        offset: Where it begins in the blob.
        k: The bits that a key sets.
        filters: How many filters it has.
        bits: The bits of each: its rows.
        page_rows: Rows in a page.
    """

    offset: int
    k: int
    filters: int
    bits: int
    page_rows: int

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return (self.filters + 7) // 8

    @property
    def length(self) -> int:
        """Its bytes, seals included."""
        return self.bits * self.row_bytes + CHECKSUM_BYTES * -(-self.bits // self.page_rows)

    def page(self, number: int) -> Part:
        """Where a page is, its seal included."""
        rows = min(self.page_rows, self.bits - number * self.page_rows)
        page_bytes = self.page_rows * self.row_bytes + CHECKSUM_BYTES
        return Part(self.offset + number * page_bytes, rows * self.row_bytes + CHECKSUM_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class MatrixDirectory:
    """What is in a blob.

    Attributes:
        matrices: The matrices.
        matrix_of: For each row group the number of its matrix.
    """

    matrices: tuple[Matrix, ...]
    matrix_of: Ints

    def row_groups(self, matrix: int) -> Ints:
        """Return the row groups of a matrix, in the order of its filters."""
        return np.flatnonzero(self.matrix_of == matrix)


class BloomMatrix(MergedFilter):
    """Tell which row groups may have a key. The directory is kept once read, pages are not.

    Args:
        blob: The blob.
        layout: Its layout.
        value_type: The type of the keys.
        row_groups: How many row groups it covers.

    Raises:
        UnsupportedError: If the layout is of another version, or the filters are of another type.
        CorruptFileError: If the layout describes no such blob, or one of other row groups.
    """

    def __init__(self, blob: Blob, layout: Ints, value_type: ValueType, row_groups: int) -> None:
        numbers = check_layout(blob, layout, _LAYOUT_NUMBERS)[1:_LAYOUT_NUMBERS]
        form, count, directory_from, checksum = numbers
        if not is_form_of(form, value_type):
            raise UnsupportedError(f"{blob.location}: form {form} is not one of a {value_type.name} column")
        if count != row_groups or not 0 <= directory_from <= blob.length:
            raise corrupt(blob, f"a bloom matrix of {count} row groups, not {row_groups}")
        self.form = form
        self._blob = blob
        self._row_groups = row_groups
        self._directory_part = Part(directory_from, blob.length - directory_from, checksum)
        self._directory: MatrixDirectory | None = None

    def read_directory(self) -> None:
        """Read the directory, unless it is known."""
        _ = self.directory

    @property
    def directory(self) -> MatrixDirectory:
        """What is in the blob; read when it is first asked for."""
        if self._directory is None:
            data = read_parts(self._blob, [self._directory_part])[0]
            self._directory = _parse_directory(self._blob, data, self._directory_part.offset, self._row_groups)
        return self._directory

    @property
    def nbytes(self) -> int:
        """The memory that it takes with what was read of its directory, about."""
        known = self._directory
        return _OBJECT_BYTES + (0 if known is None else known.matrix_of.nbytes + _OBJECT_BYTES * len(known.matrices))

    def possible(self, test: AskedTest) -> Flags:
        """Return for each row group that the blob covers whether rows of it may have one of the keys of a set test.

        Raises:
            CorruptFileError: If what is read is not what was written.
        """
        found = np.zeros(self._row_groups, np.bool_)
        for number, matrix in enumerate(self.directory.matrices):
            found[self.directory.row_groups(number)] = self._ask(matrix, self._asked_rows(test, matrix))
        return found

    def cost(self, test: AskedTest) -> tuple[int, int]:
        """Return the requests and bytes that `possible` would take, besides what this reads of the directory itself."""
        requests = length = 0
        for matrix in self.directory.matrices:
            end = -1 - COALESCE_BYTES
            for part in map(matrix.page, np.unique(self._asked_rows(test, matrix) // matrix.page_rows).tolist()):
                near = part.offset <= end + COALESCE_BYTES
                requests += not near
                length += part.offset + part.length - end if near else part.length
                end = part.offset + part.length
        return requests, length

    def _asked_rows(self, test: AskedTest, matrix: Matrix) -> Ints:
        """The rows of a matrix that have the bits of each key: shape (k, keys); all matrices of a shape share them."""
        asked = test.test
        assert isinstance(asked, SetTest)

        def work_out() -> Ints:
            hashes = hashes_of_keys(asked.keys, self.form)
            return np.stack(list(bit_positions(hashes, matrix.k, matrix.bits))).astype(np.int64, copy=False)

        return test.remember((matrix.k, matrix.bits, self.form), work_out)

    def _ask(self, matrix: Matrix, places: Ints) -> Flags:
        """Which filters of a matrix may have a key, whose bits are the rows at some places: shape (k, keys)."""
        found = np.zeros(matrix.row_bytes, np.uint8)
        step = max(1, _BYTES_AT_ONCE // (matrix.k * (matrix.page_rows * matrix.row_bytes + 1)))
        for first in range(0, places.shape[1], step):
            some = places[:, first : first + step]
            rows = self._rows(matrix, some.reshape(-1)).reshape(*some.shape, matrix.row_bytes)
            found |= np.bitwise_or.reduce(np.bitwise_and.reduce(rows, axis=0), axis=0)
        return np.unpackbits(found, count=matrix.filters, bitorder="little").view(np.bool_)

    def _rows(self, matrix: Matrix, places: Ints) -> Bytes:
        """Rows of a matrix, of neighbouring pages with one request."""
        numbers, owners = np.unique(places // matrix.page_rows, return_inverse=True)
        parts = [matrix.page(number) for number in numbers.tolist()]
        pages = [
            _check_page(self._blob, part, data) for part, data in zip(parts, read_parts(self._blob, parts), strict=True)
        ]
        # Only the last page of a matrix may be shorter: every one before begins at a multiple.
        chosen = owners * matrix.page_rows + places % matrix.page_rows
        rows: Bytes = np.concatenate(pages).reshape(-1, matrix.row_bytes)[chosen]
        return rows

    def read_matrix(self, number: int) -> Bytes:
        """Return all rows of a matrix: shape (bits, bytes of a row)."""
        matrix = self.directory.matrices[number]
        page_bytes = matrix.page_rows * matrix.row_bytes
        data = self._blob.read(matrix.offset, matrix.length)
        pages = check_pages(self._blob, Part(matrix.offset, matrix.length), data, page_bytes)
        return np.concatenate(pages).reshape(matrix.bits, matrix.row_bytes)


def check_pages(blob: Blob, part: Part, data: memoryview, page_bytes: int) -> list[Bytes]:
    """Return the rows of neighbouring pages, once their seals are known to be good.

    Args:
        blob: The blob, for messages.
        part: Where the pages lie in it.
        data: The pages.
        page_bytes: The bytes of each but the last, without its seal.

    Raises:
        CorruptFileError: If a page does not have its seal.
    """
    raw = np.frombuffer(data, np.uint8)
    starts = np.arange(0, len(raw), page_bytes + CHECKSUM_BYTES)
    ends = np.append(starts[1:], len(raw)) - CHECKSUM_BYTES
    seals = np.ascontiguousarray(raw[ends[:, None] + np.arange(CHECKSUM_BYTES)]).view("<u4").reshape(-1)
    if bool(((xxh64_many(raw, starts, ends - starts) & np.uint64(0xFFFF_FFFF)) != seals).any()):
        raise corrupt(blob, "the bytes do not have their checksum", part.offset)
    return [raw[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _check_page(blob: Blob, part: Part, data: memoryview) -> Bytes:
    """Return the rows of one page, once its seal is known to be good."""
    rows, seal = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    if checksum32(rows) != int.from_bytes(seal, "little"):
        raise corrupt(blob, "the bytes do not have their checksum", part.offset)
    return np.frombuffer(rows, np.uint8)


def _parse_directory(blob: Blob, data: memoryview, offset: int, row_groups: int) -> MatrixDirectory:
    if len(data) < DIRECTORY_HEADER.itemsize:
        raise corrupt(blob, "a directory that is cut short", offset)
    header = np.frombuffer(data, DIRECTORY_HEADER, 1)
    if int(header["version"][0]) != DIRECTORY_VERSION:
        raise UnsupportedError(f"{blob.location}: a bloom matrix of version {header['version'][0]}")
    count = int(header["matrices"][0])
    if len(data) != DIRECTORY_HEADER.itemsize + MATRIX_ENTRY.itemsize * count + 2 * row_groups:
        raise corrupt(blob, f"a directory of {count} matrices and {row_groups} row groups in {len(data)} bytes", offset)
    entries = np.frombuffer(data, MATRIX_ENTRY, count, DIRECTORY_HEADER.itemsize)
    matrix_of = np.frombuffer(data[len(data) - 2 * row_groups :], "<u2").astype(np.int64)
    matrices: list[Matrix] = []
    end = 0
    for number, (k, filters, bits, page_rows, zero) in enumerate(entries.tolist()):
        if zero or not 0 < k <= MAXIMUM_BITS_A_KEY or not 0 < bits <= MAXIMUM_BITS or not page_rows or not filters:
            raise corrupt(blob, f"matrix {number} of {filters} filters of {bits} bits, {k} a key", offset)
        matrices.append(Matrix(end, k, filters, bits, page_rows))
        end += matrices[-1].length
    if end != offset or bool((matrix_of >= count).any()):
        raise corrupt(blob, "matrices that do not fill the blob", offset)
    if np.bincount(matrix_of, minlength=count).tolist() != [matrix.filters for matrix in matrices]:
        raise corrupt(blob, "matrices of other row groups", offset)
    return MatrixDirectory(tuple(matrices), matrix_of)
