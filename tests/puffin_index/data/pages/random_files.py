"""Random Parquet files with page indexes: types, NULLs, encodings, codecs and lengths of pages."""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

TYPES: dict[str, pa.DataType] = {
    "long": pa.int64(),
    "int": pa.int32(),
    "short": pa.int16(),
    "flag": pa.bool_(),
    "double": pa.float64(),
    "float": pa.float32(),
    "text": pa.string(),
    "large text": pa.large_string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(5),
    "decimal": pa.decimal128(20, 3),
    "small decimal": pa.decimal128(7, 2),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "zoned": pa.timestamp("us", "UTC"),
    "nanos": pa.timestamp("ns"),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "list": pa.list_(pa.int64()),
    "texts": pa.large_list(pa.string()),
    "pair": pa.list_(pa.int32(), 2),
    "struct": pa.struct([("a", pa.int32()), ("b.c", pa.string())]),
    "deep": pa.struct([("a", pa.struct([("x", pa.int64()), ("y", pa.float64())])), ("l", pa.list_(pa.string()))]),
    "one": pa.struct([("only", pa.int64())]),
    "map": pa.map_(pa.string(), pa.int64()),
    "map of structs": pa.map_(pa.int32(), pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))])),
    "structs": pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])),
    "lists": pa.list_(pa.list_(pa.struct([("a", pa.int32()), ("b", pa.bool_())]))),
}
ENCODINGS = {
    "long": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
    "int": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
    "flag": ["PLAIN", "RLE"],
    "double": ["PLAIN", "BYTE_STREAM_SPLIT"],
    "text": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"],
    "fixed": ["PLAIN", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"],
}


@dataclass(frozen=True)
class FileCase:
    seed: int
    columns: tuple[str, ...]
    row_count: int
    row_group_rows: int
    distinct: int
    null_share: float
    writing: dict[str, Any]

    def table(self) -> pa.Table:
        random = Random(self.seed)
        arrays = [self._column(TYPES[name], random) for name in self.columns]
        return pa.table(arrays, names=list(self.columns))

    def _column(self, arrow_type: pa.DataType, random: Random) -> pa.Array:
        pool = [random_value(arrow_type, random) for _ in range(self.distinct)]
        # NULLs alone and in runs, so that some pages have nothing else.
        nulls = [random.random() < self.null_share for _ in range(self.row_count)]
        begin = random.randrange(self.row_count)
        if random.random() < self.null_share:
            nulls[begin : begin + self.row_count // 3] = [True] * len(nulls[begin : begin + self.row_count // 3])
        return pa.array([None if null else random.choice(pool) for null in nulls], arrow_type)

    def write(self, path: Path) -> pa.Table:
        table = self.table()
        pq.write_table(table, path, row_group_size=self.row_group_rows, write_page_index=True, **self.writing)
        return table


def random_value(arrow_type: pa.DataType, random: Random) -> Any:  # noqa: C901 - a case a type
    """A value of a type, of few enough that some come twice."""
    if pa.types.is_dictionary(arrow_type):
        return random_value(arrow_type.value_type, random)
    if pa.types.is_struct(arrow_type):
        return {field.name: _some(field.type, random) for field in arrow_type}
    if pa.types.is_map(arrow_type):
        keys = {random_value(arrow_type.key_type, random) for _ in range(random.randrange(4))}
        return [(key, _some(arrow_type.item_type, random)) for key in keys]
    if pa.types.is_fixed_size_list(arrow_type):
        return [random_value(arrow_type.value_type, random) for _ in range(arrow_type.list_size)]
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return [_some(arrow_type.value_type, random) for _ in range(random.randrange(4))]
    if pa.types.is_boolean(arrow_type):
        return random.random() < 0.5
    if pa.types.is_floating(arrow_type):
        return float(np.float32(random.uniform(-9, 9)))
    if pa.types.is_decimal(arrow_type):
        return Decimal(random.randrange(-(10**6), 10**6)).scaleb(-arrow_type.scale)
    if pa.types.is_fixed_size_binary(arrow_type):
        return random.randbytes(arrow_type.byte_width)
    if pa.types.is_binary(arrow_type):
        return random.randbytes(random.randrange(9))
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type):
        return "".join(random.choices("abcé", k=random.randrange(7)))
    if pa.types.is_temporal(arrow_type):
        number = random.randrange(0 if pa.types.is_time(arrow_type) else -10_000, 10_000)
        return pa.scalar(number, pa.int32() if arrow_type.bit_width == 32 else pa.int64()).cast(arrow_type)
    return random.randrange(-99, 9_999)


def _some(arrow_type: pa.DataType, random: Random) -> Any:
    return None if random.random() < 0.2 else random_value(arrow_type, random)


@st.composite
def file_cases(draw: st.DrawFn) -> FileCase:
    columns = tuple(draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4, unique=True)))
    writing: dict[str, Any] = {
        "compression": draw(st.sampled_from(["zstd", "snappy", "none", "gzip", "lz4", "brotli"])),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "max_rows_per_page": draw(st.integers(1, 60)),
        "data_page_size": draw(st.sampled_from([1, 100, 4_000, 1 << 20])),
        "write_batch_size": draw(st.integers(1, 70)),
        "store_schema": draw(st.booleans()),
        "write_page_checksum": draw(st.booleans()),
        "use_dictionary": draw(st.booleans()),
        "dictionary_pagesize_limit": draw(st.sampled_from([1, 64, 1 << 20])),
    }
    encodings = {name: draw(st.sampled_from(ENCODINGS[name])) for name in columns if name in ENCODINGS}
    if not writing["use_dictionary"] and encodings:
        writing["column_encoding"] = encodings
    row_count = draw(st.integers(1, 400))
    return FileCase(
        draw(st.integers(0, 2**32)),
        columns,
        row_count,
        draw(st.integers(max(1, row_count // 4), row_count)),
        draw(st.sampled_from([1, 3, 200])),
        draw(st.sampled_from([0.0, 0.1, 0.9, 1.0])),
        writing,
    )
