"""The blob type `puffin-index-bloom-matrix-v1` (docs/payloads.md): filters of row groups, cut into pages.

A page has the same bytes of each filter, so that one page answers for all of them.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import UnsupportedError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.leaf import SetTest
from puffin_index.keys.value_types import check_form
from puffin_index.kinds.base import LookUp, OpenIndex, Payload, RowSet, StoredPayload
from puffin_index.kinds.bloom.filter import (
    MAXIMUM_BITS,
    MAXIMUM_BITS_A_KEY,
    BloomBits,
    Shape,
    bit_positions,
    hashes_of_keys,
)
from puffin_index.storage.arrays import Bytes, Flags, Ints
from puffin_index.storage.binary import write_uint32_be
from puffin_index.storage.parts import (
    CHECKSUM_BYTES,
    LAYOUT_VERSION,
    Part,
    check_layout,
    checksum32,
    corrupt,
    cost_of_parts,
    parts_of,
    unsealed,
)
from puffin_index.storage.ranged import Blob, Reading, run

BLOOM_MATRIX = "puffin-index-bloom-matrix-v1"
DIRECTORY_VERSION = 2
DIRECTORY_HEADER = np.dtype([("version", "<u4"), ("matrices", "<u4")])
MATRIX_ENTRY = np.dtype([("k", "<u4"), ("filters", "<u4"), ("bits", "<u8"), ("page_bytes", "<u4"), ("zero", "<u4")])
_LAYOUT_NUMBERS = 5
_BYTES_AT_ONCE = 16 * 1024 * 1024
_OBJECT_BYTES = 200


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix of a blob: its start, the bits that a key sets, the bytes of each filter, and those on a page."""

    offset: int
    k: int
    filters: int
    filter_bytes: int
    page_bytes: int

    @property
    def page_count(self) -> int:
        """The number of pages."""
        return -(-self.filter_bytes // self.page_bytes)

    @property
    def length(self) -> int:
        """The length of the matrix in bytes, seals included."""
        return self.filter_bytes * self.filters + CHECKSUM_BYTES * self.page_count

    def page(self, number: int) -> Part:
        """Return the place of a page, seal included."""
        own = min(self.page_bytes, self.filter_bytes - number * self.page_bytes)
        whole = self.page_bytes * self.filters + CHECKSUM_BYTES
        return Part(self.offset + number * whole, own * self.filters + CHECKSUM_BYTES)


MatrixDirectory: TypeAlias = list[tuple[Matrix, Ints]]
"""The matrices of a blob, and the row groups of each in the order of its filters."""


class BloomMatrix(OpenIndex):
    """Tells which row groups may have a key. Memory keeps the directory once read, but no pages.

    Raises UnsupportedError for another version or type, CorruptFileError if the layout contradicts blob or row groups.
    """

    def __init__(self, payload: StoredPayload) -> None:
        blob, row_groups = payload.blob, len(payload.spans)
        numbers = check_layout(blob, payload.layout, _LAYOUT_NUMBERS)[1:_LAYOUT_NUMBERS]
        form, count, directory_from, checksum = numbers
        check_form(form, payload.value_type, blob.location)
        if count != row_groups or not 0 <= directory_from <= blob.length:
            raise corrupt(blob, f"a bloom matrix of {count} row groups, not {row_groups}")
        self.form = form
        self._blob = blob
        self._spans = payload.spans
        self._directory_part = Part(directory_from, blob.length - directory_from, checksum)
        self._directory: MatrixDirectory | None = None

    def directory(self) -> Reading[MatrixDirectory]:
        """Return the directory, which is read unless memory has it."""
        if self._directory is None:
            (data,) = yield from parts_of(self._blob, [self._directory_part])
            self._directory = _parse_directory(self._blob, data, self._directory_part.offset, len(self._spans))
        return self._directory

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes, including the directory once read."""
        return _OBJECT_BYTES + sum(_OBJECT_BYTES + row_groups.nbytes for _, row_groups in self._directory or ())

    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        """Prepare a test: the directory says which pages have the bits of its keys."""
        row_count = int(self._spans[:, 1].sum())
        directory = yield from self.directory()
        is_set = isinstance(asked.test, SetTest) and not asked.test.negated
        pages = (
            one.page(number)
            for one, _ in (directory if is_set else ())
            for number in np.unique((self._asked_bits(asked, one) >> 3) // one.page_bytes).tolist()
        )
        cost = cost_of_parts(pages)

        def rows(candidates: BitMap | None) -> Reading[RowSet]:
            found = BitMap()
            possible = (yield from self._possible(directory, asked)) if is_set else np.ones(len(self._spans), np.bool_)
            for base, count in self._spans[possible].tolist():
                found.add_range(base, base + count)
            found = found if candidates is None else found & candidates
            return RowSet(found, not found)

        return LookUp((0, row_count), cost, rows)

    def _possible(self, directory: MatrixDirectory, test: AskedTest) -> Reading[Flags]:
        """Return, for each covered row group, whether it may have one of the keys of a set test."""
        found = np.zeros(len(self._spans), np.bool_)
        matrices = [matrix for matrix, _ in directory]
        asked = [self._asked_bits(test, matrix) for matrix in matrices]
        step = max(1, _BYTES_AT_ONCE // (1 + sum(one.k * one.page_bytes * one.filters for one in matrices)))
        for first in range(0, asked[0].shape[1] if asked else 0, step):
            # All matrices at once: neighbouring pages of several share a request.
            some = yield from self._bits_of_all(matrices, [bits[:, first : first + step] for bits in asked])
            for (_, row_groups), bits in zip(directory, some, strict=True):
                found[row_groups] |= bits.all(axis=0).any(axis=0)
        return found

    def _asked_bits(self, test: AskedTest, matrix: Matrix) -> Ints:
        """Return the bits of each key in filters of a matrix: shape (k, keys), shared by matrices of one shape."""
        asked = test.test
        assert isinstance(asked, SetTest)

        def work_out() -> Ints:
            hashes = hashes_of_keys(asked.keys, self.form)
            return np.stack(list(bit_positions(hashes, matrix.k, 8 * matrix.filter_bytes))).astype(np.int64, copy=False)

        return test.remember((matrix.k, matrix.filter_bytes, self.form), work_out)

    def _bits_of_all(self, matrices: Sequence[Matrix], asked: Sequence[Ints]) -> Reading[list[Flags]]:
        """Read bits of all filters of each matrix: one more dimension, of the filters."""
        pages = [
            np.unique((bits >> 3) // one.page_bytes, return_inverse=True)
            for one, bits in zip(matrices, asked, strict=True)
        ]
        found: list[Flags] = []
        every = yield from self._read_pages([(one, numbers) for one, (numbers, _) in zip(matrices, pages, strict=True)])
        for one, bits, (_, owners), content in zip(matrices, asked, pages, every, strict=True):
            # Only the last page may be shorter, so every page begins at a multiple of the page's bytes.
            chosen = owners.reshape(bits.shape) * one.page_bytes + (bits >> 3) % one.page_bytes
            own = content[:, chosen] >> (bits & 7).astype(np.uint8) & 1
            found.append(np.moveaxis(own, 0, -1).astype(np.bool_))
        return found

    def _read_pages(self, asked: Sequence[tuple[Matrix, Ints]]) -> Reading[list[Bytes]]:
        """Read the bytes of all filters on pages of some matrices: shape (filters, bytes) each."""
        parts = [[matrix.page(number) for number in numbers.tolist()] for matrix, numbers in asked]
        contents = yield from parts_of(self._blob, [part for own in parts for part in own])
        read = iter(contents)
        return [
            np.concatenate(
                [
                    np.frombuffer(unsealed(self._blob, next(read), part.offset), np.uint8).reshape(matrix.filters, -1)
                    for part in own
                ],
                axis=1,
            )
            for (matrix, _), own in zip(asked, parts, strict=True)
        ]

    def filters(self) -> list[BloomBits]:
        """Return all filters, in the order of the row groups. Raises CorruptFileError if the blob is damaged."""
        found: dict[int, BloomBits] = {}
        for one, row_groups in run(self.directory()):
            (every,) = run(self._read_pages([(one, np.arange(one.page_count))]))
            own = zip(row_groups.tolist(), every, strict=True)
            found |= {row_group: BloomBits(one.k, bits) for row_group, bits in own}
        return [found[row_group] for row_group in sorted(found)]


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
    for number, (k, filters, bits, page_bytes, zero) in enumerate(entries.tolist()):
        are_bits = 0 < bits <= MAXIMUM_BITS and not bits % 8
        if zero or not are_bits or not 0 < k <= MAXIMUM_BITS_A_KEY or not page_bytes or not filters:
            raise corrupt(blob, f"matrix {number} of {filters} filters of {bits} bits, {k} a key", offset)
        matrices.append(Matrix(end, k, filters, bits // 8, page_bytes))
        end += matrices[-1].length
    if end != offset or bool((matrix_of >= count).any()):
        raise corrupt(blob, "matrices that do not fill the blob", offset)
    if np.bincount(matrix_of, minlength=count).tolist() != [matrix.filters for matrix in matrices]:
        raise corrupt(blob, "matrices of other row groups", offset)
    return [(matrix, np.flatnonzero(matrix_of == number)) for number, matrix in enumerate(matrices)]


PAGE_BYTES = 16 * 1024
"""The most bytes of a page with several of each filter. A look-up reads k pages, and each page has a seal."""


def build_bloom_matrix(filters: Sequence[BloomBits], form: int) -> Payload:
    """Build the payload of the filters of row groups, in order, of values hashed in a stored form."""
    members: dict[Shape, list[int]] = defaultdict(list)
    for row_group, one in enumerate(filters):
        members[one.shape].append(row_group)
    entries = np.zeros(len(members), MATRIX_ENTRY)
    matrix_of = np.zeros(len(filters), "<u2")
    data: list[bytes] = []
    for number, ((k, bits), row_groups) in enumerate(sorted(members.items())):
        matrix_of[row_groups] = number
        page_bytes = max(1, PAGE_BYTES // len(row_groups))
        entries[number] = (k, len(row_groups), bits, page_bytes, 0)
        stacked = np.stack([filters[place].bits for place in row_groups])
        pages = (stacked[:, at : at + page_bytes].tobytes() for at in range(0, bits // 8, page_bytes))
        data += [part for page in pages for part in (page, write_uint32_be(checksum32(page)))]
    header = np.array([(DIRECTORY_VERSION, len(entries))], DIRECTORY_HEADER)
    directory = header.tobytes() + entries.tobytes() + matrix_of.tobytes()
    directory_from = sum(map(len, data))
    layout = [LAYOUT_VERSION, form, len(filters), directory_from, checksum32(directory)]
    content = b"".join((*data, directory))
    return Payload(BLOOM_MATRIX, content, np.array(layout, np.int64), len(filters))
