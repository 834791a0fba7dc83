"""Rows of a row group, read from the pages that hold them.

A Parquet file is put around the pages in memory, with the schema and the key-values of the whole file. So Arrow decodes
pages exactly as it decodes the whole file: all codecs, encodings and types. Leaves of nested columns are read one by
one, as their pages begin at different rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from puffin_index.data.file_fields import FileField, children_of, leaf_count
from puffin_index.data.page_index import ColumnChunk, FooterLayout, HeldRows, OffsetIndex, layout_of, parse_offset_index
from puffin_index.data.parquet import coded_by_dictionary, decoded
from puffin_index.data.thrift_compact import CompactReader, broken_means_corrupt
from puffin_index.errors import CorruptFileError
from puffin_index.storage.arrays import Ints
from puffin_index.storage.binary import write_uint32_le
from puffin_index.storage.caches import shared_cache
from puffin_index.storage.parallel import in_parallel
from puffin_index.storage.ranged import RangedReader, near_spans


def read_ranges(reader: RangedReader, offsets: Ints, sizes: Ints, at_once: int = 1) -> list[memoryview]:
    """Read ranges in any order, some requests side by side, near ones together, or raise CorruptFileError."""
    ranges = list(zip(offsets.tolist(), sizes.tolist(), strict=True))
    requests = near_spans(ranges)
    data, starts = in_parallel(lambda one: reader.read(*one), requests, at_once), [start for start, _ in requests]
    places = ((offset, size, bisect_right(starts, offset) - 1) for offset, size in ranges)
    return [data[at][offset - starts[at] :][:size] for offset, size, at in places]


def can_assemble(arrow_type: pa.DataType) -> bool:
    """Whether a column of this type can be put together from its leaves. One leaf is the column already."""
    if leaf_count(arrow_type) == 1:
        return True
    children = [] if pa.types.is_fixed_size_list(arrow_type) else children_of(arrow_type)
    return bool(children) and all(can_assemble(child.type) for _, child in children)


def assemble(arrow_type: pa.DataType, leaves: Sequence[pa.Array]) -> pa.Array:
    """Put a column, for whose type `can_assemble` holds, together from its leaves, each as Arrow reads it alone.

    A map is a list of structs of one field there. Raises ValueError if leaves disagree on NULLs or lengths of lists.
    """
    first = leaves[0]
    if len(leaves) == 1:
        return first
    nulls = first.is_null()
    if any(not leaf.is_null().equals(nulls) for leaf in leaves[1:]):
        raise ValueError("the leaves of a column disagree where the column is NULL")
    mask = nulls if first.null_count else None
    if pa.types.is_struct(arrow_type):
        children = _assemble_children(arrow_type, [leaf.field(0) for leaf in leaves])
        return pa.StructArray.from_arrays(children, fields=list(arrow_type), mask=mask)
    lengths = pc.fill_null(pc.list_value_length(first), 0)
    if any(not pc.fill_null(pc.list_value_length(leaf), 0).equals(lengths) for leaf in leaves[1:]):
        raise ValueError("the leaves of a column disagree on the lengths of lists")
    offsets = np.concatenate(([0], np.cumsum(lengths.to_numpy(zero_copy_only=False))))
    inner = [leaf.flatten() for leaf in leaves]
    if pa.types.is_map(arrow_type):
        keys, items = _assemble_children(arrow_type, [entries.field(0) for entries in inner])
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=arrow_type, mask=mask)
    values = assemble(arrow_type.value_type, inner)
    if pa.types.is_large_list(arrow_type):
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values, type=arrow_type, mask=mask)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=arrow_type, mask=mask)


def _assemble_children(arrow_type: pa.DataType, leaves: Sequence[pa.Array]) -> list[pa.Array]:
    """The fields of a struct, or key and value of a map, each from its own leaves."""
    types = [child.type for _, child in children_of(arrow_type)]
    ends = list(accumulate(map(leaf_count, types)))
    return [assemble(one, leaves[begin:end]) for one, begin, end in zip(types, [0, *ends[:-1]], ends, strict=True)]


_TYPE, _CONTENT_BYTES = 1, 3
_DATA, _DATA_V2 = 5, 8
_VALUES, _ROWS = 1, 3
_DICTIONARY_TYPE = 2
_DATA_TYPES = (0, 3)


@dataclass(frozen=True, slots=True)
class PageHeader:
    """A page header, with the values of a data page (NULLs and empty lists included), and its rows if stated."""

    is_data: bool
    is_dictionary: bool
    size: int
    values: int
    rows: int | None


def parse_page_header(page: memoryview, location: str, offset: int) -> PageHeader:
    """Parse the header of a page at an offset of the file, or raise CorruptFileError if there is none."""
    numbers: dict[int, int] = {}
    data: dict[int, int] = {}
    rows: int | None = None
    with broken_means_corrupt("the page header", location, offset):
        reader = CompactReader(page)
        for number, kind in reader.fields():
            if number in (_TYPE, _CONTENT_BYTES):
                numbers[number] = reader.integer()
            elif number in (_DATA, _DATA_V2):
                data = reader.integers()
                rows = data.get(_ROWS) if number == _DATA_V2 else None
            else:
                reader.skip(kind)
    kind = numbers.get(_TYPE, -1)
    size = reader.at + numbers.get(_CONTENT_BYTES, -1)
    return PageHeader(kind in _DATA_TYPES, kind == _DICTIONARY_TYPE, size, data.get(_VALUES, -1), rows)


_MAGIC = b"PAR1"
_INDEX_BYTES = 32 << 20
_CHUNKS = 20_000

# Files of a table never change. Keys are location, size, row group and leaf.
_indexes, _indexes_lock = shared_cache(_INDEX_BYTES, lambda index: index.byte_count)
_chunks, _chunks_lock = shared_cache(_CHUNKS)


@dataclass(frozen=True, slots=True)
class LeafPages:
    """All pages of a leaf's column chunk, those to read (at least one), and the bytes of these and of a dictionary.

    Leaves whose pages begin at the same rows share `held`.
    """

    chunk: ColumnChunk
    index: OffsetIndex
    held: HeldRows
    byte_count: int

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Offset and bytes of the dictionary, and of each page to read."""
        pages = self.held.pages
        own = zip(self.index.offsets[pages].tolist(), self.index.sizes[pages].tolist(), strict=True)
        return [self.index.dictionary, *own]


@dataclass(frozen=True, slots=True)
class PageReader:
    """Reads pages of one row group, by some requests side by side, and decodes its columns in parts side by side."""

    parquet: pq.ParquetFile
    file: RangedReader
    layout: FooterLayout
    ordinal: int
    requests_at_once: int = 1
    parts: int = 1

    @classmethod
    def of(cls, parquet: pq.ParquetFile, file: RangedReader, ordinal: int) -> PageReader:
        """Return a reader of a row group."""
        return cls(parquet, file, layout_of(parquet.metadata, file.location, file.size), ordinal)

    @property
    def row_count(self) -> int:
        """The rows of the row group."""
        return int(self.parquet.metadata.row_group(self.ordinal).num_rows)

    def chunks(self, leaves: Collection[int]) -> dict[int, ColumnChunk]:
        """Return column chunks by leaf; without those that are encrypted, or that do not lie in this file."""
        location, size = self.file.location, self.file.size
        with _chunks_lock:
            known: dict[int, ColumnChunk | None] = {
                leaf: _chunks.get((location, size, self.ordinal, leaf)) for leaf in leaves
            }
        missing = frozenset(leaf for leaf, chunk in known.items() if chunk is None)
        if missing:
            found = self.layout.chunks(self.ordinal, missing, location)
            known |= found
            with _chunks_lock:
                _chunks.update({(location, size, self.ordinal, leaf): chunk for leaf, chunk in found.items()})
        return {
            leaf: chunk
            for leaf, chunk in known.items()
            if chunk is not None and 0 <= chunk.start <= size and 0 <= chunk.size <= size - chunk.start
        }

    def offset_indexes(self, chunks: Mapping[int, ColumnChunk]) -> dict[int, OffsetIndex]:
        """Read offset indexes of chunks by leaf, in one round of requests; those that were read before are kept.

        Those of no use are left out (`parse_offset_index`). Raises CorruptFileError if one is broken.
        """
        location, size = self.file.location, self.file.size
        with _indexes_lock:
            known: dict[int, OffsetIndex | None] = {
                leaf: _indexes.get((location, size, self.ordinal, leaf)) for leaf in chunks
            }
        missing = {leaf: chunk for leaf, chunk in chunks.items() if known[leaf] is None}
        places = np.array([chunk.offset_index for chunk in missing.values()], np.int64).reshape(-1, 2)
        found = read_ranges(self.file, places[:, 0], places[:, 1], self.requests_at_once)
        for (leaf, chunk), data in zip(missing.items(), found, strict=True):
            index = known[leaf] = parse_offset_index(data, chunk, self.row_count, location)
            if index is not None and index.byte_count < _INDEX_BYTES:
                with _indexes_lock:
                    _indexes[location, size, self.ordinal, leaf] = index
        return {leaf: index for leaf, index in known.items() if index is not None}

    def pages(
        self, chunks: Mapping[int, ColumnChunk], indexes: Mapping[int, OffsetIndex], rows: Ints
    ) -> dict[int, LeafPages]:
        """Return the pages of each leaf with an offset index that hold rows of the row group, which ascend."""
        known: dict[tuple[bytes, bool], HeldRows] = {}
        pages: dict[int, LeafPages] = {}
        for leaf, index in indexes.items():
            key = index.first_rows.tobytes(), self._is_repeated(leaf)
            held = known.get(key)
            if held is None:
                held = known[key] = HeldRows.of(index.first_rows, rows, is_repeated=key[1])
            byte_count = index.dictionary[1] + int(index.sizes[held.pages].sum())
            pages[leaf] = LeafPages(chunks[leaf], index, held, byte_count)
        return pages

    def read(self, fields: Sequence[FileField], leaves: Mapping[int, LeafPages]) -> pa.Table:
        """Read the rows that `pages` was asked for, of some top-level fields, in one round of requests.

        `leaves` has the pages of each leaf of the fields, and `can_assemble` holds for these. Raises CorruptFileError
        if pages are not what the offset index says.
        """
        part = pa.py_buffer(self._part_file(leaves))
        coded = coded_by_dictionary(self.parquet.metadata.row_group(self.ordinal), fields)

        def decode(some: Sequence[FileField]) -> pa.Table:
            # A reader of Arrow is not made for several threads.
            parquet = pq.ParquetFile(pa.BufferReader(part), coerce_int96_timestamp_unit="us", read_dictionary=coded)
            taken = _taken(parquet, some, leaves)
            columns = [_column(field, [taken[leaf] for leaf in field.leaves]) for field in some]
            return pa.table(columns, schema=pa.schema([field.field for field in some]))

        with decoded(self.file.location, f"pages of row group {self.ordinal}"):
            count = min(self.parts, len(fields))
            table, *others = in_parallel(decode, [fields[number::count] for number in range(count)])
            for other in others:
                table = joined(table, other)
        return table

    def _is_repeated(self, leaf: int) -> bool:
        return bool(self.parquet.schema.column(leaf).max_repetition_level)

    def _part_file(self, leaves: Mapping[int, LeafPages]) -> bytes:
        """A Parquet file of one row group with these pages. The rows of its columns differ."""
        ranges = {number: leaf.ranges for number, leaf in leaves.items()}
        offsets, sizes = np.array(list(chain.from_iterable(ranges.values())), np.int64).T
        found = iter(read_ranges(self.file, offsets, sizes, self.requests_at_once))
        parts: list[bytes | memoryview] = [_MAGIC]
        at = len(_MAGIC)
        chunks: dict[int, bytes] = {}
        for number, leaf in leaves.items():
            dictionary = next(found)
            pages = [next(found) for _ in ranges[number][1:]]
            values = self._check_pages(number, leaf, ranges[number], dictionary, pages)
            chunks[number] = leaf.chunk.part(at if dictionary else None, at + len(dictionary), leaf.byte_count, values)
            parts += [dictionary, *pages]
            at += leaf.byte_count
        # One row more than there are: Arrow reads what there is, so that a page with too many rows is seen.
        most_rows = 1 + max(int(leaf.held.row_counts.sum()) for leaf in leaves.values())
        footer = self.layout.footer(most_rows, len(self.parquet.schema), chunks)
        return b"".join((*parts, footer, write_uint32_le(len(footer)), _MAGIC))

    def _check_pages(
        self,
        number: int,
        leaf: LeafPages,
        ranges: Sequence[tuple[int, int]],
        dictionary: memoryview,
        pages: Sequence[memoryview],
    ) -> int:
        """Check page headers against the offset index (`ranges` are the leaf's), and count the values in the pages.

        Raises CorruptFileError if a page is no such page, or has other lengths or rows than the offset index says.
        """
        location = self.file.location
        if dictionary:
            header = parse_page_header(dictionary, location, leaf.index.dictionary[0])
            if not header.is_dictionary or header.size != len(dictionary):
                raise CorruptFileError("no dictionary page", location=location, offset=leaf.index.dictionary[0])
        is_repeated = self._is_repeated(number)
        values = 0
        places = zip(pages, ranges[1:], leaf.held.row_counts.tolist(), strict=True)
        for page, (offset, _), row_count in places:
            header = parse_page_header(page, location, offset)
            rows = header.rows if header.rows is not None or is_repeated else header.values
            if not header.is_data or header.size != len(page) or header.values < row_count:
                raise CorruptFileError("no data page of the offset index", location=location, offset=offset)
            if rows is not None and rows != row_count:
                raise CorruptFileError(f"a page of {rows} rows, and not {row_count}", location=location, offset=offset)
            values += header.values
        return values


def _taken(
    parquet: pq.ParquetFile, fields: Sequence[FileField], leaves: Mapping[int, LeafPages]
) -> dict[int, pa.ChunkedArray]:
    """Read the leaves of fields from a file of pages, and take the values in the wanted rows."""
    alike: dict[HeldRows | int, list[int]] = {}
    for field in fields:
        for leaf in field.leaves:
            # Columns whose pages have the same rows are read together; several leaves of one column would be joined.
            alike.setdefault(leaves[leaf].held if len(field.leaves) == 1 else leaf, []).append(leaf)
    taken: dict[int, pa.ChunkedArray] = {}
    for some in map(sorted, alike.values()):
        read, held = parquet.reader.read_row_group(0, column_indices=some, use_threads=False), leaves[some[0]].held
        expected = int(held.row_counts.sum())
        if any(len(values) != expected for values in read.columns):
            raise ValueError(f"pages of {expected} rows have {[len(values) for values in read.columns]}")
        chosen = read.take(pa.array(held.positions))
        taken |= zip(some, chosen.columns, strict=True)
    return taken


def _column(field: FileField, leaves: Sequence[pa.ChunkedArray]) -> pa.Array | pa.ChunkedArray:
    if len(leaves) == 1:
        (values,) = leaves
        return values if values.type == field.field.type else values.cast(field.field.type)
    return assemble(field.field.type, [pa.concat_arrays(values.chunks) for values in leaves])


def joined(table: pa.Table, other: pa.Table) -> pa.Table:
    """Return a table with the columns of another table of as many rows."""
    for name in other.column_names:
        table = table.append_column(other.schema.field(name), other.column(name))
    return table
