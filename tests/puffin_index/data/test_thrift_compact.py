"""Thrift's compact protocol: what is written is read back, and broken bytes are refused."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from puffin_index.data.thrift_compact import (
    BINARY,
    I64,
    STRUCT,
    CompactReader,
    broken_means_corrupt,
    integer_bytes,
    struct_bytes,
    varints_of,
)
from puffin_index.errors import CorruptFileError

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.dictionaries(st.integers(1, 2_000), INT64))
def test_integers_of_a_struct_are_read_back(numbers: dict[int, int]) -> None:
    written = struct_bytes({number: (I64, integer_bytes(value)) for number, value in numbers.items()})
    assert CompactReader(written).integers() == numbers
    assert struct_bytes(CompactReader(written).raw_fields()) == written


@given(st.lists(st.integers(0, (1 << 60) - 1), min_size=1, max_size=40), st.binary(max_size=20))
def test_many_integers_are_read_at_once(numbers: list[int], rest: bytes) -> None:
    written = b"".join(integer_bytes(number) for number in numbers)
    found = varints_of(written + rest, len(numbers))
    # Zigzag doubles what is not negative.
    assert found is None or (found >> np.uint64(1)).tolist() == numbers
    assert found is not None or max(numbers) >= 1 << 55


def test_a_footer_is_the_same_after_its_fields_are_cut_and_joined() -> None:
    written = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2], "b": [["x"], None]}), written, write_page_index=True)
    data = written.getvalue()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    assert struct_bytes(CompactReader(footer).raw_fields()) == footer


@given(st.binary(max_size=60), st.sampled_from([BINARY, STRUCT, 9, 10, 3, 7, 6, 15]))
def test_broken_bytes_are_refused_or_read_but_never_anything_else(data: bytes, kind: int) -> None:
    try:
        with broken_means_corrupt("it", "f", 0):
            CompactReader(data).raw(kind)
    except CorruptFileError:
        pass


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(CorruptFileError, match="nested"), broken_means_corrupt("it", "f", 0):
        CompactReader(b"\x1c" * 5_000).raw(STRUCT)
