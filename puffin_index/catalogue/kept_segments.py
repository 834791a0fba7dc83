"""Finished segments that the catalog did not take: a record beside them has the entries that a later build commits.

A record is a Puffin file `<id>.kept` in the folder of the segments, with one blob: the rows for the index table, as one
Arrow IPC stream like a directory. The checksums of blob and footer prove that a record is whole.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from puffin_index.catalogue.index_table import as_entries, segments_folder
from puffin_index.catalogue.stored_files import StoredFile, list_stored_files
from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.errors import CorruptFileError, NotFoundError, PuffinIndexError
from puffin_index.formats.puffin import PuffinWriter, check_head, read_blob, read_footer
from puffin_index.segments.directory import FieldKind, parse_batch
from puffin_index.segments.segment import new_segment_location
from puffin_index.segments.write_directory import serialize_batch
from puffin_index.storage.files import FileReader, NewFile

KEPT_ENTRIES_BLOB = "puffin-index-kept-entries-v1"
_NAME = re.compile(r"[0-9a-f]{32}\.kept")
_BUILT_AS = "built-as"
_OWNER = "index-table-uuid"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptSegments:
    """The segments of a build whose commit failed.

    Attributes:
        owner: The UUID of the index table: others may share its location.
        entries: The entries of the segments, as rows of the index table.
        built_as: The value type and options of each index (`built_as`).
    """

    owner: str
    entries: pa.Table
    built_as: Mapping[FieldKind, str]

    @property
    def segments(self) -> set[str]:
        """The locations of the segments."""
        return set(self.entries["segment"].to_pylist())


def built_as(columns: Iterable[ResolvedColumn]) -> dict[FieldKind, str]:
    """Return the value type and options of each index of a definition, as text that is equal if both are."""
    return {
        (column.field_id, column.stored_kind(kind)): json.dumps([column.value_type.name, dict(options)], sort_keys=True)
        for column in columns
        for kind, options in column.kinds.items()
    }


def write_record(index_table: Table, job_id: str, kept: KeptSegments) -> str:
    """Write a record; return its location.

    Args:
        index_table: The index table.
        job_id: The first digits of the name.
        kept: The segments.
    """
    location = f"{new_segment_location(segments_folder(index_table), job_id).removesuffix('.puffin')}.kept"
    batch = kept.entries.combine_chunks().to_batches()[0]
    texts = [[field_id, kind, text] for (field_id, kind), text in kept.built_as.items()]
    with NewFile(index_table.io, location) as stream:
        writer = PuffinWriter(stream, created_by="puffin-index")
        properties = {_OWNER: kept.owner, _BUILT_AS: json.dumps(texts)}
        writer.add(KEPT_ENTRIES_BLOB, serialize_batch(batch, {}), properties=properties)
        writer.finish()
    return location


def read_record(io: FileIO, location: str) -> KeptSegments:
    """Read a record.

    Raises:
        CorruptFileError: If the record is damaged.
        UnsupportedError: If the record is of a later version.
        NotFoundError: If another build has used the record up.
    """
    with FileReader(io, location) as reader:
        check_head(reader)
        blobs = read_footer(reader, require_checksum=True).blobs
        if [blob.type for blob in blobs] != [KEPT_ENTRIES_BLOB]:
            raise CorruptFileError("not a record of kept segments", location=location)
        data = read_blob(reader, blobs[0])
    try:
        batch = parse_batch(data, (), location=location, offset=blobs[0].offset)
        entries = as_entries(pa.Table.from_batches([batch]))
        owner, texts = blobs[0].properties[_OWNER], json.loads(blobs[0].properties[_BUILT_AS])
        return KeptSegments(owner, entries, {(int(field_id), str(kind)): str(text) for field_id, kind, text in texts})
    except (pa.ArrowException, LookupError, ValueError, TypeError) as error:
        raise CorruptFileError(f"not a record of kept segments: {error}", location=location) from error


def list_records(index_table: Table) -> list[str]:
    """Return the locations of all records in the folder of the segments."""
    folder = segments_folder(index_table)
    return sorted(file.location for file in list_stored_files(index_table.io, folder) if _NAME.fullmatch(file.name))


def named_by_records(io: FileIO, listed: Iterable[StoredFile]) -> set[str]:
    """Return the locations of all segments that records name.

    A record that another build has used up since the listing names nothing, and neither does a damaged one.
    """
    named: set[str] = set()
    for file in listed:
        if file.is_record:
            try:
                named |= read_record(io, file.location).segments
            except NotFoundError:
                continue
            except PuffinIndexError as error:
                _log.warning("record of kept segments not read: %s", error)
    return named
