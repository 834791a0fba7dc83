"""Checking indexes against the data: a row group's values are read again, and no value may be missed.

Statistics must be equal; the kind of an index says how to prove a payload (`puffin_index.kinds.proof`).
"""

from __future__ import annotations

from collections.abc import Iterator

from cachetools import LRUCache

from puffin_index.data.row_groups import OpenDataFile, read_keys
from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.jobs.verify_segment import Finding
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.map_key import plain_kind, split_kind
from puffin_index.kinds.proof import Proof
from puffin_index.kinds.registry import kind_named
from puffin_index.kinds.statistics import statistics_of
from puffin_index.segments.directory import FieldKind, statistics_key
from puffin_index.segments.source_segment import IndexedFile, SourceSegment
from puffin_index.storage.ranged import RangedReader

_MOST_DECODED = 4


class Proofs:
    """The proofs of the payloads that were checked last: a proof may have decoded its payload.

    The row groups of a segment are checked one after another.
    """

    def __init__(self) -> None:
        self._known: LRUCache[tuple[str, FieldKind, int], Proof] = LRUCache(_MOST_DECODED)

    def of(self, source: SourceSegment, key: FieldKind, row: int, reader: RangedReader) -> Proof:
        """Return the proof of a payload.

        Args:
            source: The segment that has the payload.
            key: The index.
            row: The row of its directory.
            reader: The bytes of the segment.
        """
        place = source.location, key, row
        if place not in self._known:
            self._known[place] = kind_named(plain_kind(key[1])).proof(source.open(key, row, reader))
        return self._known[place]


def check_row_group(
    opened: OpenDataFile,
    file: IndexedFile,
    ordinal: int,
    key: FieldKind,
    source: SourceSegment,
    reader: RangedReader,
    proofs: Proofs,
) -> Iterator[Finding]:
    """Compare one index of one row group with the data.

    Args:
        opened: The data file.
        file: Where its indexes are.
        ordinal: The row group, from 0 in the data file.
        key: The index.
        source: The segment that has it.
        reader: Its bytes.
        proofs: Those of payloads that were checked before.
    """
    name = f"field {key[0]} {key[1]}, row group {ordinal} of {file.file.path}"
    try:
        directory = source.directories[key]
        column = SortedColumn(read_keys(opened, ordinal, split_kind(*key)[0], directory.value_type))
        row_group = file.parts[key].first_row_group + ordinal
        row = int(source.payload_rows[key][row_group])
        prove = proofs.of(source, key, row, reader)
        base, row_count = source.spans[row_group].tolist()
        wrong = [*prove(row_group - directory.covered(row).start, (base, row_count), column)]
        wrong += _check_statistics(column, source, key, row_group)
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
