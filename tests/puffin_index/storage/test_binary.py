import pytest
from hypothesis import given, strategies as st

from puffin_index.errors import CorruptFileError
from puffin_index.storage import binary
from puffin_index.storage.binary import ByteCursor

INTEGERS = {
    "uint8": (1, False, "big"),
    "uint16_be": (2, False, "big"),
    "int32_be": (4, True, "big"),
    "int32_le": (4, True, "little"),
    "uint32_be": (4, False, "big"),
    "uint32_le": (4, False, "little"),
    "int64_be": (8, True, "big"),
    "uint64_le": (8, False, "little"),
}


@pytest.mark.parametrize("name", INTEGERS)
@given(data=st.data())
def test_an_integer_has_the_bytes_that_python_itself_gives_it(name: str, data: st.DataObject) -> None:
    size, signed, order = INTEGERS[name]
    stored = data.draw(st.binary(min_size=size, max_size=size))
    value = int.from_bytes(stored, "big" if order == "big" else "little", signed=signed)
    assert getattr(binary, f"write_{name}")(value) == stored
    assert getattr(ByteCursor(stored), name)() == value
    with pytest.raises(CorruptFileError):
        getattr(ByteCursor(stored[1:]), name)()


def test_a_float_has_its_ieee_bytes() -> None:
    assert binary.write_float64_be(1.5).hex() == "3ff8000000000000"
    assert binary.write_float64_be(-0.0).hex() == "8000000000000000"


def test_a_cursor_reads_one_after_another_and_says_where_it_is() -> None:
    cursor = ByteCursor(b"\x01\x00\x02\x00\x00\x00\x03abc")
    assert (cursor.int8(), cursor.uint16_be(), cursor.int32_be()) == (1, 2, 3)
    assert (cursor.position, cursor.remaining) == (7, 3)
    assert bytes(cursor.bytes(3)) == b"abc"
    cursor.expect_end()


def test_a_cursor_that_failed_has_not_moved_and_points_into_the_file() -> None:
    cursor = ByteCursor(b"\x01\x02\x03", "f", base_offset=50)
    cursor.int8()
    for attempt in (cursor.int32_be, lambda: cursor.bytes(3), lambda: cursor.bytes(-1)):
        with pytest.raises(CorruptFileError) as caught:
            attempt()
        assert (caught.value.location, caught.value.offset) == ("f", 51)
    assert cursor.position == 1
    assert cursor.uint16_be() == 0x0203


def test_a_cursor_refuses_bytes_left_over() -> None:
    cursor = ByteCursor(b"ab")
    cursor.int8()
    with pytest.raises(CorruptFileError, match="1 bytes too many"):
        cursor.expect_end()


def test_a_count_is_accepted_up_to_what_the_remaining_bytes_can_hold() -> None:
    cursor = ByteCursor(bytes(4 + 20))
    cursor.int32_be()
    assert cursor.count(5, 4) == 5
    for hostile in (6, -1, 2**31 - 1):
        with pytest.raises(CorruptFileError, match="do not fit in 20 bytes"):
            cursor.count(hostile, 4)


def test_a_cursor_hands_out_views_and_no_copies() -> None:
    data = bytearray(b"abcd")
    view = ByteCursor(data).bytes(4)
    data[0] = ord("z")
    assert bytes(view) == b"zbcd"
