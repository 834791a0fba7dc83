"""A small segment of a real table, written by the real code: two data files of two row groups each, every blob type."""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import list_data_files
from puffin_index.definition.index_definition import IndexDefinition, resolve
from puffin_index.formats.puffin import PuffinFile, read_footer
from puffin_index.segments.segment import SegmentTask, write_segment
from puffin_index.storage.ranged import BytesReader
from tests.conftest import create_table

ROWS, ROW_GROUP_ROWS = 900, 600
TYPES = {"id": "long", "status": "string", "day": "date", "amount": "double", "code": "binary", "price": "decimal(9,2)"}
FIELD_IDS = {name: number for number, name in enumerate(TYPES, 1)}
DEFINITION = IndexDefinition.of(
    bitmap=("status", "day", "code", "amount"),
    bsi=("id", "day", "amount", "price", "status"),
    bloom=("id", "status"),
    options={
        "status.layout": "bitmaps",
        "day.layout": "bitmaps",
        "code.layout": "bitmaps",
        "amount.layout": "postings",
        "id.compression": "none",
        "day.compression": "none",
        "amount.compression": "none",
        "price.compression": "none",
    },
)
BLOB_TYPES = {
    "paimon-bitmap-v2",
    "paimon-bloom-v1",
    "paimon-bsi-v1",
    "puffin-index-bsi-v1",
    "puffin-index-directory-v1",
    "puffin-index-postings-v1",
    "puffin-index-row-groups-v1",
    "puffin-index-statistics-v1",
}


@dataclass(frozen=True)
class SegmentSample:
    """The segment as a file, as bytes with its footer, and the values in it: column -> row group -> values."""

    path: Path
    reader: BytesReader
    footer: PuffinFile
    values: dict[str, list[list[Any]]]


def _columns(seed: int) -> dict[str, list[Any]]:
    numbers = [(row * 7919 + seed) % 997 - 400 for row in range(ROWS)]
    missing = [row % 13 == 5 for row in range(ROWS)]
    return {
        "id": numbers,
        "status": [None if no else f"state {number % 7} é" for number, no in zip(numbers, missing, strict=True)],
        "day": [None if no else 20_000 + number // 50 for number, no in zip(numbers, missing, strict=True)],
        "amount": [number / 8 for number in numbers],
        "code": [bytes([number % 5]) * (number % 3) for number in numbers],
        "price": [Decimal(number).scaleb(-2) for number in numbers],
    }


def write_sample(catalog: SqlCatalog, folder: Path) -> SegmentSample:
    """Create `ns.sample` and write the segment of its data files."""
    arrow = {
        "id": pa.int64(),
        "status": pa.string(),
        "day": pa.date32(),
        "amount": pa.float64(),
        "code": pa.binary(),
        "price": pa.decimal128(9, 2),
    }
    parts = [_columns(seed) for seed in (0, 1)]
    tables = [pa.table({name: pa.array(part[name], kind) for name, kind in arrow.items()}) for part in parts]
    table = create_table(catalog, "sample", tables[0], ROW_GROUP_ROWS)
    table.append(tables[1])
    files, columns = list_data_files(table), resolve(DEFINITION, table.schema())
    segment = write_segment(SegmentTask(files, columns, table.io, table.io, folder.as_uri(), reading_of(table)))
    path = Path(segment.location.removeprefix("file://"))
    reader = BytesReader.of(path.read_bytes(), str(path))
    # Which file comes first is Iceberg's choice: the values are told apart by what is in the file.
    seeds = [0 if _first_id(covered.file.path) == parts[0]["id"][0] else 1 for covered in segment.covered]
    bounds = [(start, min(start + ROW_GROUP_ROWS, ROWS)) for start in range(0, ROWS, ROW_GROUP_ROWS)]
    values = {name: [parts[seed][name][start:end] for seed in seeds for start, end in bounds] for name in TYPES}
    return SegmentSample(path, reader, read_footer(reader), values)


def _first_id(location: str) -> int:
    found: int = pq.read_table(location.removeprefix("file://"), columns=["id"])["id"][0].as_py()
    return found
