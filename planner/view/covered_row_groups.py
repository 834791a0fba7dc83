"""The row groups that one version of an index table covers, numbered 0 … N-1, data file by data file.

Arrays have one element per row group, so that a stage of the planner is a few array operations.
"""

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.view.directories import Placement, positions_by_number
from puffin_index.data.column_source import FieldSource
from puffin_index.data.data_table import DataFile
from puffin_index.data.row_groups import READ_WHOLE
from puffin_index.index_table.entries import sources_of
from puffin_index.keys.map_key import ColumnId, split_kind
from puffin_index.segments.directory import int64_column
from puffin_index.segments.segment import align
from puffin_index.storage.arrays import Flags, Ints


class CoveredRowGroups:
    """The row groups of all data files that have an index, and where in the segments it is.

    A file that was indexed in parts has several rows in the index table, but one range of numbers.

    Attributes:
        paths: Locations of the data files; a file that several partitions have had appears once for each of them.
        constants: The values that the identity partitions of the data files fix.
        file_numbers: The number of each data file, by location and constants.
        range_starts: Start of the byte range that reads each row group alone (`puffin_index.data.row_groups`).
    """

    def __init__(self, entries: pa.Table) -> None:
        self._entries = entries
        files = list(zip(entries["data_file"].to_pylist(), entries["partition_constants"].to_pylist(), strict=True))
        first_entry: dict[tuple[str, str], int] = {}
        for entry, file in enumerate(files):
            first_entry.setdefault(file, entry)
        self.paths: tuple[str, ...] = tuple(path for path, _ in first_entry)
        self.constants: tuple[str, ...] = tuple(constants for _, constants in first_entry)
        entry_of_file = np.fromiter(first_entry.values(), np.int64, len(first_entry))
        self.file_numbers = {file: number for number, file in enumerate(first_entry)}
        self._file_of_entry = np.fromiter((self.file_numbers[file] for file in files), np.int64, len(files))
        own = entries.take(pa.array(entry_of_file))
        self.file_sizes: Ints = int64_column(own, "file_size_in_bytes")
        self.record_counts: Ints = int64_column(own, "record_count")
        counts = np.asarray(pc.list_value_length(own["row_counts"]).to_numpy(), np.int64)
        self.row_group_counts: Ints = counts
        self.first_row_groups: Ints = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)[: len(counts)]
        self.row_counts: Ints = np.asarray(pc.list_flatten(own["row_counts"]).to_numpy(), np.int64)
        self._files_with_pages: Flags = np.asarray(own["has_pages"].to_numpy(), np.bool_)
        self.file_of: Ints = np.repeat(np.arange(len(counts)), counts)
        # A file without one start per row group is read whole.
        fits = np.asarray(pc.list_value_length(own["split_offsets"]).to_numpy(), np.int64) == counts
        self.range_starts: Ints = np.full(int(counts.sum()), READ_WHOLE, np.int64)
        starts = pc.list_flatten(own["split_offsets"].filter(pa.array(fits))).to_numpy()
        self.range_starts[np.repeat(fits, counts)] = starts

    @cached_property
    def sources(self) -> frozenset[FieldSource]:
        """Where in the data files the indexed columns were found."""
        return sources_of(self._entries)

    @cached_property
    def first_rows(self) -> Ints:
        """For each row group the position of its first row in its data file."""
        before = np.concatenate(([0], np.cumsum(self.row_counts)[:-1])).astype(np.int64)[: self.row_group_count]
        return np.asarray(before - before[self.first_row_groups[self.file_of]], np.int64)

    @cached_property
    def segments(self) -> tuple[tuple[str, int], ...]:
        """Location and size of every segment."""
        rows = zip(
            self._entries["segment"].to_pylist(), self._entries["segment_size_in_bytes"].to_pylist(), strict=True
        )
        return tuple(dict.fromkeys(rows))

    @cached_property
    def is_read_whole(self) -> Flags:
        """Whether each row group is of a data file that readers of byte ranges read whole or not at all."""
        files = np.zeros(len(self.paths), np.bool_)
        files[self.file_of[self.range_starts < 0]] = True
        return files[self.file_of]

    @cached_property
    def has_pages(self) -> Flags:
        """Whether each row group has pages that can be read alone; so it is said to have if nobody knows."""
        return self._files_with_pages[self.file_of]

    @property
    def row_group_count(self) -> int:
        """N."""
        return len(self.row_counts)

    def row_groups_of(self, file: DataFile) -> range | None:
        """The row groups of a data file; None if it is not indexed or is not the file that was indexed."""
        at = self.file_numbers.get((file.path, file.constants_text))
        if at is None or file.file_size != self.file_sizes[at] or file.record_count != self.record_counts[at]:
            return None
        first, count = int(self.first_row_groups[at]), int(self.row_group_counts[at])
        if file.split_offsets and len(file.split_offsets) != count:
            return None
        return range(first, first + count)

    @cached_property
    def row_group_bytes(self) -> Ints:
        """The approximate bytes of each row group in its data file."""
        share = self.row_counts / np.maximum(self.record_counts[self.file_of], 1)
        return np.asarray(share * self.file_sizes[self.file_of], np.int64)

    @cached_property
    def ordinals_in_file(self) -> Ints:
        """For each row group its ordinal in the data file."""
        return np.asarray(np.arange(self.row_group_count) - self.first_row_groups[self.file_of], np.int64)

    @cached_property
    def placements(self) -> dict[tuple[ColumnId, str], Placement]:
        """For each (field, kind), the segment and directory entry of every row group."""
        directories = pc.list_flatten(self._entries["directories"]).combine_chunks()
        entry = np.repeat(
            np.arange(len(self._entries)),
            np.asarray(pc.list_value_length(self._entries["directories"]).to_numpy(), np.int64),
        )
        fields, kinds, offsets, lengths, checksums = (
            pc.struct_field(directories, name) for name in ("field_id", "kind", "offset", "length", "xxh64")
        )
        kinds = kinds.dictionary_encode()
        field_ids, kind_codes = fields.to_numpy(), kinds.indices.to_numpy()
        numbers = {location: number for number, (location, _) in enumerate(self.segments)}
        in_order = self._entries["segment"].combine_chunks().dictionary_encode()
        number_of_code = np.array([numbers[location] for location in in_order.dictionary.to_pylist()], np.int32)
        segment_of_entry = number_of_code[in_order.indices.to_numpy()]
        first_in_segment = int64_column(self._entries, "first_row_group")
        first_base = int64_column(self._entries, "first_base")
        # The rows of the segment's row space that earlier row groups of the same data file take up.
        space = np.concatenate(([0], np.cumsum(align(self.row_counts)))).astype(np.int64)
        rows_before = space[:-1] - space[self.first_row_groups][self.file_of]
        placements: dict[tuple[ColumnId, str], Placement] = {}
        groups = positions_by_number(field_ids.astype(np.int64) * max(len(kinds.dictionary), 1) + kind_codes)
        for _, rows in groups:
            key = split_kind(int(field_ids[rows[0]]), kinds.dictionary[int(kind_codes[rows[0]])].as_py())
            # A file has one entry a build; where two builders raced, the last entry wins.
            entry_of_file = np.full(len(self.paths), -1, np.int64)
            entry_of_file[self._file_of_entry[entry[rows]]] = entry[rows]
            of_row_group = entry_of_file[self.file_of]
            segment = np.where(of_row_group >= 0, segment_of_entry[of_row_group], -1).astype(np.int32)
            row_group = (first_in_segment[of_row_group] + self.ordinals_in_file).astype(np.int32)
            last_row_groups = np.zeros(len(self.segments), np.int32)
            np.maximum.at(last_row_groups, segment[segment >= 0], row_group[segment >= 0])
            used, first = np.unique(segment_of_entry[entry[rows]], return_index=True)
            placed = pa.array(rows[first])
            where = (column.take(placed).to_pylist() for column in (offsets, lengths, checksums))
            placements[key] = Placement(
                segment=segment,
                row_group=row_group,
                base=first_base[of_row_group] + rows_before,
                last_row_groups=last_row_groups,
                locations=dict(zip(used.tolist(), zip(*where, strict=True), strict=True)),
            )
        return placements
