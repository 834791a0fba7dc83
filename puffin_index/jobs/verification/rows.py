"""Check indexes against the data: a row group's values are read again, and no value may be missed.

Statistics must be equal; the kind of an index decides how to prove a payload (`puffin_index.kinds.proof`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType

from cachetools import LRUCache
from pyiceberg.io import FileIO

from puffin_index.data.row_groups import OpenDataFile, read_keys
from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.jobs.verification.segment import Finding
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.map_key import split_kind
from puffin_index.kinds.proof import Proof
from puffin_index.kinds.statistics import statistics_of
from puffin_index.segments.directory import FieldKind, index_kind, statistics_key
from puffin_index.segments.source_segment import IndexedFile, SourceSegment
from puffin_index.storage.files import FileReader

_MOST_DECODED = 4
_MOST_OPEN = 4


class Proofs(AbstractContextManager["Proofs"]):
    """The proofs of the payloads checked last, and the open segments that these proofs read.

    Proofs are kept because a proof may have decoded its payload, and a segment's row groups are checked in sequence.

    Args:
        io: The FileIO of the index table.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._known: LRUCache[tuple[str, FieldKind, int], Proof] = LRUCache(_MOST_DECODED)
        self._readers: OrderedDict[str, FileReader] = OrderedDict()

    def of(self, source: SourceSegment, key: FieldKind, row: int) -> Proof:
        """Return the proof of a payload.

        Args:
            source: The segment that has the payload.
            key: The index.
            row: The directory row of the payload.
        """
        reader, place = self._reader(source), (source.location, key, row)
        if place not in self._known:
            row_counts = source.spans[source.directories[key].covered(row), 1]
            self._known[place] = index_kind(key[1]).proof(source.open(key, row, reader), row_counts)
        return self._known[place]

    def _reader(self, source: SourceSegment) -> FileReader:
        if source.location not in self._readers:
            if len(self._readers) == _MOST_OPEN:
                location, oldest = self._readers.popitem(last=False)
                oldest.close()
                # Proofs of the closed segment would read from a closed file.
                for place in [place for place in self._known if place[0] == location]:
                    del self._known[place]
            self._readers[source.location] = FileReader(self._io, source.location, source.size)
        self._readers.move_to_end(source.location)
        return self._readers[source.location]

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the segments."""
        for reader in self._readers.values():
            reader.close()


def check_row_group(
    opened: OpenDataFile,
    file: IndexedFile,
    ordinal: int,
    key: FieldKind,
    source: SourceSegment,
    proofs: Proofs,
) -> Iterator[Finding]:
    """Compare one index of one row group with the data.

    Args:
        opened: The data file.
        file: The data file with the places of its indexes.
        ordinal: The place of the row group in the data file, from 0.
        key: The index.
        source: The segment that has the index.
        proofs: The proofs of payloads checked before.
    """
    name = f"field {key[0]} {key[1]}, row group {ordinal} of {file.file.path}"
    try:
        directory = source.directories[key]
        column = SortedColumn(read_keys(opened, ordinal, split_kind(*key)[0], directory.value_type))
        row_group = file.parts[key].first_row_group + ordinal
        row = int(source.payload_rows[key][row_group])
        prove = proofs.of(source, key, row)
        wrong = [*_check_statistics(column, source, key, row_group)]
        wrong += prove(row_group - directory.covered(row).start, column)
    except (CorruptFileError, UnsupportedError) as error:
        wrong = [error.reason if isinstance(error, CorruptFileError) else str(error)]
    for what in wrong:
        yield Finding(source.location, name, 0, what)


def _check_statistics(column: SortedColumn, source: SourceSegment, key: FieldKind, row_group: int) -> Iterator[str]:
    stored = source.statistics[statistics_key(key)].slice(row_group, 1).to_pylist()[0]
    found = statistics_of(column)
    for name in ("row_count", "null_count", "nan_count", "distinct_count", "minimum", "maximum"):
        if stored[name] != getattr(found, name):
            yield f"{name} is {stored[name]!r}, the data has {getattr(found, name)!r}"
