"""The blob type `puffin-index-bloom-matrix-v1` (docs/formats.md): filters of row groups, equal bits side by side."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from puffin_index.errors import UnsupportedError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.leaf import SetTest
from puffin_index.keys.value_types import is_form_of
from puffin_index.kinds.base import MergedFilter, Payload, StoredPayload
from puffin_index.kinds.bloom.filter import (
    MAXIMUM_BITS,
    MAXIMUM_BITS_A_KEY,
    BloomBits,
    Shape,
    bit_positions,
    hashes_of_keys,
)
from puffin_index.storage.arrays import Bytes, Flags, Ints
from puffin_index.storage.binary import write_uint32_le
from puffin_index.storage.bit_packing import transpose_bits
from puffin_index.storage.parts import (
    CHECKSUM_BYTES,
    LAYOUT_VERSION,
    Part,
    check_layout,
    checksum32,
    corrupt,
    cost_of_parts,
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
    """One matrix of a blob: its start, the bits that a key sets, and the bits of each filter, which are its rows."""

    offset: int
    k: int
    filters: int
    bits: int
    page_rows: int

    @property
    def row_bytes(self) -> int:
        """The length of a row in bytes."""
        return (self.filters + 7) // 8

    @property
    def length(self) -> int:
        """The length of the matrix in bytes, seals included."""
        return self.bits * self.row_bytes + CHECKSUM_BYTES * -(-self.bits // self.page_rows)

    def page(self, number: int) -> Part:
        """Return the place of a page, seal included."""
        rows = min(self.page_rows, self.bits - number * self.page_rows)
        page_bytes = self.page_rows * self.row_bytes + CHECKSUM_BYTES
        return Part(self.offset + number * page_bytes, rows * self.row_bytes + CHECKSUM_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class MatrixDirectory:
    """The directory of a blob; `matrix_of` has the number of each row group's matrix."""

    matrices: tuple[Matrix, ...]
    matrix_of: Ints

    def row_groups(self, matrix: int) -> Ints:
        """Return the row groups of a matrix, in the order of its filters."""
        return np.flatnonzero(self.matrix_of == matrix)


class BloomMatrix(MergedFilter):
    """Tells which row groups may have a key. Memory keeps the directory once read, but no pages.

    Raises UnsupportedError for another version or type, CorruptFileError if the layout contradicts blob or row groups.
    """

    def __init__(self, payload: StoredPayload) -> None:
        blob, row_groups = payload.blob, len(payload.spans)
        numbers = check_layout(blob, payload.layout, _LAYOUT_NUMBERS)[1:_LAYOUT_NUMBERS]
        form, count, directory_from, checksum = numbers
        if not is_form_of(form, payload.value_type):
            raise UnsupportedError(f"{blob.location}: form {form} is not one of a {payload.value_type.name} column")
        if count != row_groups or not 0 <= directory_from <= blob.length:
            raise corrupt(blob, f"a bloom matrix of {count} row groups, not {row_groups}")
        self.form = form
        self._blob = blob
        self._row_groups = row_groups
        self._directory_part = Part(directory_from, blob.length - directory_from, checksum)
        self._directory: MatrixDirectory | None = None

    def read_directory(self) -> None:
        """Read the directory unless memory has it."""
        _ = self.directory

    @property
    def directory(self) -> MatrixDirectory:
        """The directory, read on first use."""
        if self._directory is None:
            data = read_parts(self._blob, [self._directory_part])[0]
            self._directory = _parse_directory(self._blob, data, self._directory_part.offset, self._row_groups)
        return self._directory

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes, including the directory once read."""
        known = self._directory
        return _OBJECT_BYTES + (0 if known is None else known.matrix_of.nbytes + _OBJECT_BYTES * len(known.matrices))

    def possible(self, test: AskedTest) -> Flags:
        """Return, for each covered row group, whether it may have one of the keys of a set test."""
        found = np.zeros(self._row_groups, np.bool_)
        for number, matrix in enumerate(self.directory.matrices):
            found[self.directory.row_groups(number)] = self._ask(matrix, self._asked_rows(test, matrix))
        return found

    def cost(self, test: AskedTest) -> tuple[int, int]:
        """Return the requests and bytes that `possible` would take after the directory read of this method."""
        requests = length = 0
        for matrix in self.directory.matrices:
            pages = np.unique(self._asked_rows(test, matrix) // matrix.page_rows).tolist()
            own_requests, own_length = cost_of_parts(map(matrix.page, pages))
            requests, length = requests + own_requests, length + own_length
        return requests, length

    def _asked_rows(self, test: AskedTest, matrix: Matrix) -> Ints:
        """Return the rows of a matrix for the bits of each key: shape (k, keys), shared by matrices of one shape."""
        asked = test.test
        assert isinstance(asked, SetTest)

        def work_out() -> Ints:
            hashes = hashes_of_keys(asked.keys, self.form)
            return np.stack(list(bit_positions(hashes, matrix.k, matrix.bits))).astype(np.int64, copy=False)

        return test.remember((matrix.k, matrix.bits, self.form), work_out)

    def _ask(self, matrix: Matrix, places: Ints) -> Flags:
        """Return which filters of a matrix may have one of the keys, given the rows for their bits: shape (k, keys)."""
        found = np.zeros(matrix.row_bytes, np.uint8)
        step = max(1, _BYTES_AT_ONCE // (matrix.k * (matrix.page_rows * matrix.row_bytes + 1)))
        for first in range(0, places.shape[1], step):
            some = places[:, first : first + step]
            rows = self._rows(matrix, some.reshape(-1)).reshape(*some.shape, matrix.row_bytes)
            found |= np.bitwise_or.reduce(np.bitwise_and.reduce(rows, axis=0), axis=0)
        return np.unpackbits(found, count=matrix.filters, bitorder="little").view(np.bool_)

    def _rows(self, matrix: Matrix, places: Ints) -> Bytes:
        """Read rows of a matrix."""
        numbers, owners = np.unique(places // matrix.page_rows, return_inverse=True)
        # Only the last page may be shorter, so every page begins at a multiple of the page's rows.
        chosen = owners * matrix.page_rows + places % matrix.page_rows
        rows: Bytes = self._read_pages(matrix, numbers.tolist())[chosen]
        return rows

    def _read_pages(self, matrix: Matrix, numbers: Sequence[int]) -> Bytes:
        """Read the rows of some pages of a matrix: shape (rows, bytes of a row); neighbours share a request."""
        parts = [matrix.page(number) for number in numbers]
        read = zip(parts, read_parts(self._blob, parts), strict=True)
        pages = [_check_page(self._blob, part, data) for part, data in read]
        return np.concatenate(pages).reshape(-1, matrix.row_bytes)

    def filters(self) -> list[BloomBits]:
        """Return all filters, in the order of the row groups. Raises CorruptFileError if the blob is damaged."""
        found: dict[int, BloomBits] = {}
        for number, one in enumerate(self.directory.matrices):
            padded = np.zeros((-(-one.bits // 8) * 8, one.row_bytes), np.uint8)
            padded[: one.bits] = self._read_pages(one, range(-(-one.bits // one.page_rows)))
            columns = transpose_bits(padded)
            row_groups = self.directory.row_groups(number).tolist()
            found |= {row_group: BloomBits(one.k, columns[place]) for place, row_group in enumerate(row_groups)}
        return [found[row_group] for row_group in sorted(found)]


def _check_page(blob: Blob, part: Part, data: memoryview) -> Bytes:
    """Check the seal of one page and return its rows."""
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


PAGE_BYTES = 4 * 1024
"""The most bytes of a page with several rows. Pages are small because a look-up reads k pages for one row each."""
_GROWTH = 0.25
"""The share by which copies of filters, made for fewer matrices, may enlarge the blob."""


def build_bloom_matrix(filters: Sequence[BloomBits], form: int) -> Payload:
    """Build the payload of the filters of row groups, in order, of values hashed in a stored form."""
    members: dict[Shape, list[int]] = defaultdict(list)
    for row_group, one in enumerate(filters):
        members[one.shape].append(row_group)
    merged = _in_fewer(members)
    entries = np.zeros(len(merged), MATRIX_ENTRY)
    matrix_of = np.zeros(len(filters), "<u2")
    data: list[bytes] = []
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
    content = b"".join((*data, directory))
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


def _paged(filters: Bytes, page_rows: int) -> bytes:
    """Transpose filters to the rows of a matrix; return the rows in pages with seals."""
    rows = transpose_bits(filters)
    flat, page_bytes = rows.reshape(-1), page_rows * rows.shape[1]
    pages = (flat[start : start + page_bytes].data for start in range(0, len(flat), page_bytes))
    return b"".join(part for page in pages for part in (page, write_uint32_le(checksum32(page))))
