"""Keys of maps: each row's value for one, and how an index of one is stored."""

from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from puffin_index.errors import UnsupportedError
from puffin_index.keys.map_key import Contents, MapKey, index_of, split_kind, values_of_key

MAPS = st.one_of(
    st.none(),
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "ä", "a.b", ""]), st.one_of(st.none(), st.integers(0, 9))), max_size=4
    ),
)
ARROW = pa.map_(pa.string(), pa.int64())


@given(rows=st.lists(MAPS, max_size=30), start=st.integers(0, 30), key=st.sampled_from(["a", "ä", "a.b", "", "none"]))
def test_rows_have_the_first_entry_of_a_key(
    rows: list[list[tuple[str, int | None]] | None], start: int, key: str
) -> None:
    maps = pa.array(rows, ARROW).slice(start)

    found = values_of_key(maps, key)

    expected = [next((value for name, value in row or () if name == key), None) for row in rows[start:]]
    assert found.to_pylist() == expected


@given(st.lists(st.dictionaries(st.integers(-3, 3), st.text(max_size=2)), max_size=10))
def test_keys_may_be_numbers_of_any_width(rows: list[dict[int, str]]) -> None:
    for width in (pa.int32(), pa.int64()):
        maps = pa.array([list(row.items()) for row in rows], pa.map_(width, pa.string()))
        assert values_of_key(maps, "-2").to_pylist() == [row.get(-2) for row in rows]


def test_keys_may_be_dates() -> None:
    maps = pa.array([[(date(2024, 2, 29), 1.5)], [(date(2024, 3, 1), 2.5)]], pa.map_(pa.date32(), pa.float64()))

    assert values_of_key(maps, "2024-02-29").to_pylist() == [1.5, None]


def test_keys_of_other_types_in_a_file_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="Arrow double keys"):
        values_of_key(pa.array([[(1.0, 2)]], pa.map_(pa.float64(), pa.int64())), "1")


def test_a_stored_kind_tells_the_subjects_of_one_column_apart() -> None:
    assert index_of(2, "bitmap") == (2, "bitmap")
    for subject in (2, MapKey(2, "a#k#b"), MapKey(2, "a#c#keys"), Contents(2, "keys"), Contents(2, "words")):
        assert split_kind(*index_of(subject, "bitmap")) == (subject, "bitmap")


def test_what_a_later_release_indexes_of_a_column_is_no_index_of_the_column() -> None:
    assert split_kind(2, "bitmap#c#grams") == (2, "bitmap#c#grams")
