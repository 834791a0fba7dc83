"""Export: the payloads that an index has of a row group become a container that Paimon reads.

A container of Paimon's is about one data file and says nothing of row groups, so it holds the indexes of one row group.
Each kind says which of its blobs Paimon reads, and by which name.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from pyiceberg.table import Table

from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import DataFile, retained_files
from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.display import Described, Report, format_bytes
from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.formats.paimon_container import map_key_column, write_container
from puffin_index.formats.puffin import PuffinFile, read_blob, read_footer
from puffin_index.index_table.entries import indexed_files, readable_entries
from puffin_index.index_table.table import read_entries
from puffin_index.keys.map_key import ColumnId, Contents, MapKey, plain_kind, split_kind
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.registry import KINDS
from puffin_index.segments.inspection import PayloadPlace, read_payload_places
from puffin_index.segments.source_segment import IndexedFile, Part
from puffin_index.storage.files import FileReader
from puffin_index.storage.ranged import RangedReader


@dataclass(frozen=True, slots=True)
class ExportedContainer(Described):
    """A container made from segments, Paimon's index names by column, and the payloads that Paimon has no format for.

    `output` is the file that the container was written to, if it was.
    """

    JSON: ClassVar = ("output", "bytes=size", "indexes", "left_out")

    data: bytes
    indexes: Mapping[str, Sequence[str]]
    left_out: tuple[PayloadPlace, ...]
    output: str = ""

    @property
    def size(self) -> int:
        """The size of the container in bytes."""
        return len(self.data)

    def describe(self) -> Report:
        """Describe the container, and warn of what it lacks."""
        kinds = "; ".join(f"{column}: {', '.join(names)}" for column, names in self.indexes.items())
        lacks = [
            f"left out: {place.kind} of field {place.field_id}: Paimon cannot read {place.blob_type}"
            for place in self.left_out
        ]
        return Report(f"{self.output or 'container'}, {format_bytes(self.size)}: {kinds}", warnings=lacks)


RowGroupPlace: TypeAlias = tuple[RangedReader, int, Mapping[ColumnId, str]]
"""A segment, the ordinal of a row group there, and the names that columns have in the container, in its order."""


def export_indexes(
    data_table: Table,
    index_table: Table,
    columns: Sequence[ResolvedColumn],
    data_file: str,
    row_group: int | None = None,
) -> ExportedContainer:
    """Put the indexes of one row group of a data file (its location, or the last parts) into a container.

    The row group is that at a place from 0, or the only one. Raises NotFoundError without such a file or index,
    UnsupportedError if the row group is open or Paimon can read nothing.
    """
    found = [file for file in retained_files(data_table).values() if f"/{file.path}".endswith(f"/{data_file}")]
    if len(found) != 1:
        table, what = ".".join(data_table.name()), f"{len(found)} data files" if found else "no data file"
        raise NotFoundError(f"table {table} has {what} {data_file}; `explain --all` lists the data files")
    (file,) = found
    names = {column.column_id: _container_name(column) for column in columns}
    indexed = _indexed(data_table, index_table, file, names)
    if row_group is None and len(indexed.row_counts) != 1:
        raise UnsupportedError(f"{file.path} has {len(indexed.row_counts)} row groups: say which one, from 0")
    at = row_group or 0
    if not 0 <= at < len(indexed.row_counts):
        raise NotFoundError(f"{file.path} has no row group {at}: it has {len(indexed.row_counts)}")
    return fill_container(_places(index_table, indexed, at, names))


def _places(
    index_table: Table, indexed: IndexedFile, row_group: int, names: Mapping[ColumnId, str]
) -> Iterator[RowGroupPlace]:
    """Open each segment that has indexes of the columns, one after the other."""
    columns: dict[Part, set[ColumnId]] = {}
    for key, part in indexed.parts.items():
        columns.setdefault(part, set()).add(split_kind(*key)[0])
    for part, here in sorted(columns.items(), key=lambda item: item[0].segment):
        own = {column: name for column, name in names.items() if column in here}
        if own:
            with FileReader(index_table.io, part.segment) as reader:
                yield reader, part.first_row_group + row_group, own


def _indexed(data_table: Table, index_table: Table, file: DataFile, columns: Container[ColumnId]) -> IndexedFile:
    entries = readable_entries(read_entries(index_table), reading_of(data_table))
    for indexed in indexed_files(entries):
        if indexed.file.identity == file.identity and any(split_kind(*key)[0] in columns for key in indexed.parts):
            return indexed
    raise NotFoundError(f"the index has nothing of {file.path}: run `puffin-index build` first")


def _container_name(column: ResolvedColumn) -> str:
    if isinstance(column.column_id, MapKey):
        return map_key_column(column.name.removesuffix(column.column_id.key)[:-3], column.column_id.key)
    return column.name


def fill_container(row_groups: Iterable[RowGroupPlace]) -> ExportedContainer:
    """Write one container of the payloads that segments have of the same row group, those that Paimon can read.

    A name is `map[key]` for one key of a map. Raises NotFoundError if a segment lacks its row group or a column,
    CorruptFileError if a directory or a payload is damaged, ValueError if two columns have one name, UnsupportedError
    if Paimon has a format for none of the payloads, or the container would be too large.
    """
    indexes: dict[str, dict[str, bytes | None]] = {}
    left_out: list[PayloadPlace] = []
    locations: list[str] = []
    for segment, row_group, names in row_groups:
        locations.append(segment.location)
        footer = read_footer(segment)
        blobs = {(blob.type, blob.offset, blob.length): blob for blob in footer.blobs}
        for place in _asked(segment, footer, row_group, names):
            # Paimon has no name for what the rows of a column contain.
            kind = None if isinstance(place.column, Contents) else KINDS.get(plain_kind(place.kind))
            value_type = value_type_named(place.value_type)
            if kind is None or not kind.paimon_name or not kind.paimon_reads(place.blob_type, value_type):
                left_out.append(place)
                continue
            blob = blobs.get((place.blob_type, place.offset, place.length))
            if blob is None:
                reason = f"a directory has a payload {place.blob_type} that the footer does not have"
                raise CorruptFileError(reason, location=segment.location, offset=place.offset)
            indexes.setdefault(names[place.column], {})[kind.paimon_name] = bytes(read_blob(segment, blob))
    if not indexes:
        types = ", ".join(sorted({f"{place.blob_type} of {place.value_type}" for place in left_out}))
        raise UnsupportedError(f"{', '.join(locations)}: Paimon reads none of the blobs of the row group: {types}")
    kinds = {column: tuple(bodies) for column, bodies in indexes.items()}
    return ExportedContainer(write_container(indexes), kinds, tuple(left_out))


def _asked(
    segment: RangedReader, footer: PuffinFile, row_group: int, names: Mapping[ColumnId, str]
) -> list[PayloadPlace]:
    if len(set(names.values())) < len(names):
        raise ValueError("two columns of one name cannot be told apart in a container")
    places = [
        place
        for place in read_payload_places(segment, footer)
        if place.first_row_group <= row_group < place.first_row_group + place.row_groups
    ]
    missing = names.keys() - {place.column for place in places}
    if missing or not names:
        fields = ", ".join(sorted(map(str, missing))) or "any field"
        raise NotFoundError(f"{segment.location}: row group {row_group} has no payload of {fields}")
    return [place for column in names for place in places if place.column == column]
