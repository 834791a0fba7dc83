"""Data files of a kit's tables and segments over them, by the real build; the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, schema_to_pyarrow

from conformance.tables import KitTable
from puffin_index.data.column_source import Reading
from puffin_index.data.data_table import DataFile
from puffin_index.definition.index_definition import IndexDefinition, resolve
from puffin_index.keys.map_key import index_of
from puffin_index.segments.rewrite import write_merged
from puffin_index.segments.segment import Segment, SegmentTask, write_segment
from puffin_index.segments.source_segment import IndexedFile, Part, read_source

SCHEME = "kit://"


class KitIO(PyArrowFileIO):
    """Local files under a name that does not depend on the machine: `kit://x` is the file x of a folder."""

    def new_input(self, location: str) -> PyArrowFile:
        """Open a file."""
        return super().new_input(self._local(location))

    def new_output(self, location: str) -> PyArrowFile:
        """Make a file."""
        return super().new_output(self._local(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        super().delete(self._local(location if isinstance(location, str) else location.location))

    def _local(self, location: str) -> str:
        return f"{self.properties['folder']}/{location.removeprefix(SCHEME)}"


def write_table(table: KitTable, folder: Path) -> list[DataFile]:
    """Write the data files of a table, with field ids."""
    schema = schema_to_pyarrow(table.schema)
    files: list[DataFile] = []
    for number, row_groups in enumerate(table.files):
        rows, path = sum(row_groups), folder / f"{number}.parquet"
        columns = zip(table.columns, schema.types, strict=True)
        data = pa.table([pa.array(column.values(number, rows), kind) for column, kind in columns], schema=schema)
        # Not compressed: a segment has the offsets of row groups, which should not depend on a library's version.
        with pq.ParquetWriter(path, data.schema, compression="none", use_dictionary=False) as writer:
            first = 0
            for row_group in row_groups:
                writer.write_table(data.slice(first, row_group), row_group_size=max(row_group, 1))
                first += row_group
        footer = pq.read_metadata(path)
        assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == list(row_groups)
        offsets = tuple(footer.row_group(n).column(0).data_page_offset for n in range(footer.num_row_groups))
        files.append(DataFile(f"{SCHEME}{path.name}", path.stat().st_size, rows, offsets))
    return files


def build_segment(table: KitTable, definition: IndexDefinition, files: Iterable[DataFile], io: KitIO) -> Segment:
    """Build one segment of some data files."""
    columns = resolve(definition, table.schema)
    return write_segment(SegmentTask(tuple(files), columns, io, io, SCHEME.rstrip("/") + "/", Reading(table.schema)))


def compact_segments(table: KitTable, definition: IndexDefinition, files: Iterable[DataFile], io: KitIO) -> Segment:
    """Build a segment for each data file, and compact the segments to one."""
    segments = [build_segment(table, definition, [file], io) for file in files]
    sources = {}
    indexed: list[IndexedFile] = []
    for segment in segments:
        source = read_source(io, segment.location, segment.size, segment.footer_size, segment.directories)
        sources[segment.location] = source
        (covered,) = segment.covered
        parts = {key: Part(segment.location, 0) for key in source.directories}
        indexed.append(
            IndexedFile(
                *(covered.file, covered.row_counts, covered.row_group_offsets),
                *(parts, covered.sources, covered.has_pages),
            )
        )
    options = {
        index_of(column.column_id, kind): kind_options
        for column in resolve(definition, table.schema)
        for kind, kind_options in column.kinds.items()
    }
    return write_merged(indexed, sources, options, io, f"{SCHEME}compacted.puffin")
