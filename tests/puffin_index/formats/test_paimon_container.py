from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.formats.paimon_container import (
    HEAD_READ_BYTES,
    MAGIC,
    decode_modified_utf8,
    encode_modified_utf8,
    map_key_column,
    read_container,
    write_container,
)
from puffin_index.storage.ranged import Blob, BytesReader
from tests.counting_reader import CountingReader
from tests.puffin_index.formats.damage import damages, small_damages

GOLDEN = Path(__file__).parents[2] / "golden" / "container_paimon.bin"
DOCUMENTED = (CorruptFileError, UnsupportedError)

Indexes = Mapping[str, Mapping[str, bytes | None]]

GOLDEN_INDEXES: Indexes = {
    "id": {"bitmap": b"\x01\x02\x03", "bsi": b"", "bloom-filter": bytes(range(256))},
    "größe\0😀": {"bitmap": None},
    "m[ключ]": {"bloom-filter": b"xyz"},
    "nothing": {},
}
SMALL: Indexes = {"ab": {"bitmap": b"xyz", "bsi": None}, "c": {"bsi": b"", "bitmap": b"12"}}

NAMES = st.text(max_size=6)
INDEXES = st.dictionaries(NAMES, st.dictionaries(NAMES, st.none() | st.binary(max_size=30), max_size=4), max_size=4)


def _read_all(data: bytes) -> dict[str, dict[str, bytes | None]]:
    container = read_container(BytesReader.of(data))
    return {
        column: {name: None if blob is None else bytes(blob.read_all()) for name, blob in blobs.items()}
        for column, blobs in container.indexes.items()
    }


def _int32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def _framed(head: bytes, body: bytes = b"", *, version: int = 1, head_size: int | None = None) -> bytes:
    size = 16 + len(head) if head_size is None else head_size
    return MAGIC.to_bytes(8, "big") + _int32(version) + _int32(size) + head + body


def _one_index(start: int, length: int, body: bytes = b"abcde", *, name: bytes = b"n", redundant: bytes = b"") -> bytes:
    named = len(name).to_bytes(2, "big") + name
    head = _int32(1) + b"\0\1c" + _int32(1) + named + _int32(start) + _int32(length)
    return _framed(head + _int32(len(redundant)) + redundant, body)


HEAD_OF_ONE = 16 + 4 + 3 + 4 + 3 + 8 + 4


class TestPaimon:
    def test_our_bytes_are_those_that_paimon_wrote(self) -> None:
        assert write_container(GOLDEN_INDEXES) == GOLDEN.read_bytes()

    def test_we_read_what_paimon_wrote_in_its_order(self) -> None:
        found = _read_all(GOLDEN.read_bytes())
        assert found == GOLDEN_INDEXES
        assert [*found] == [*GOLDEN_INDEXES]
        assert [*found["id"]] == [*GOLDEN_INDEXES["id"]]


@given(indexes=INDEXES)
def test_what_is_written_is_read_back(indexes: Indexes) -> None:
    found = _read_all(write_container(indexes))
    assert found == indexes
    assert [(column, *found[column]) for column in found] == [(column, *indexes[column]) for column in indexes]


class TestReading:
    def test_opening_takes_one_read_and_each_index_one_of_its_own_bytes(self) -> None:
        reader = CountingReader(write_container({"c": {"a": bytes(10_000), "b": b"wanted"}}))
        container = read_container(reader)
        assert reader.reads == [(0, HEAD_READ_BYTES)]
        reader.reads.clear()
        blob = container.indexes["c"]["b"]
        assert blob is not None
        assert bytes(blob.read(0, 6)) == b"wanted"
        assert reader.reads == [(reader.size - 6, 6)]

    @pytest.mark.parametrize(("head_size", "reads"), [(HEAD_READ_BYTES, 1), (HEAD_READ_BYTES + 1, 2)])
    def test_only_a_head_longer_than_the_first_read_takes_a_second(self, head_size: int, reads: int) -> None:
        column = "c" * (head_size - HEAD_OF_ONE + 1)
        reader = CountingReader(write_container({column: {"n": b"body" * 3000}}))
        assert read_container(reader).head_size == head_size
        assert len(reader.reads) == reads
        assert sum(length for _, length in reader.reads) == head_size

    def test_a_container_may_be_a_part_of_a_file(self) -> None:
        inner = write_container(SMALL)
        outer = BytesReader.of(b"before" + inner + b"after")
        blob = read_container(Blob(outer, 6, len(inner))).indexes["ab"]["bitmap"]
        assert blob is not None
        assert bytes(blob.read_all()) == b"xyz"

    def test_redundant_bytes_of_a_later_writer_are_passed_over(self) -> None:
        assert _read_all(_one_index(HEAD_OF_ONE + 3, 5, redundant=b"???")) == {"c": {"n": b"abcde"}}


class TestBounds:
    @pytest.mark.parametrize("version", [0, 2, -1])
    def test_another_version_is_named(self, version: int) -> None:
        with pytest.raises(UnsupportedError, match=f"version {version}; known is 1"):
            read_container(BytesReader.of(_framed(bytes(8), version=version)))

    @pytest.mark.parametrize("head_size", [-1, 0, 15, 23, 25, 2**31 - 1, -(2**31)])
    def test_a_head_length_beyond_the_container_is_refused(self, head_size: int) -> None:
        with pytest.raises(CorruptFileError, match=f"a head of {head_size} bytes") as caught:
            read_container(BytesReader.of(_framed(bytes(8), head_size=head_size)))
        assert caught.value.offset == 12

    @pytest.mark.parametrize("count", [1, 2**31 - 1, -1])
    def test_a_hostile_number_is_refused(self, count: int) -> None:
        for head, reason in (
            (_int32(count) + _int32(0), f"{count} columns"),
            (_int32(1) + b"\0\1c" + _int32(count) + _int32(0), f"{count} indexes"),
            (_int32(0) + _int32(count), "redundant bytes"),
        ):
            with pytest.raises(CorruptFileError, match=reason):
                read_container(BytesReader.of(_framed(head)))

    @pytest.mark.parametrize(
        ("head", "reason"),
        [
            (_int32(1) + b"\0\0" + _int32(0), "int32"),
            (_int32(0) + _int32(0) + b"x", "1 bytes too many"),
            (_int32(2) + (b"\0\1c" + _int32(0)) * 2 + _int32(0), "occurs twice"),
            (_int32(1) + b"\0\1c" + _int32(2) + (b"\0\1n" + _int32(-1) + _int32(0)) * 2 + _int32(0), "occurs twice"),
        ],
    )
    def test_a_head_ends_where_it_says_and_has_each_name_once(self, head: bytes, reason: str) -> None:
        with pytest.raises(CorruptFileError, match=reason):
            read_container(BytesReader.of(_framed(head)))

    # Small damage (below) moves an index by other numbers, and makes its length another.
    @pytest.mark.parametrize(("start", "length"), [(-1, 5), (-1, -1), (-1, 0), (-2, 0), (HEAD_OF_ONE, 2**31 - 1)])
    def test_an_index_begins_where_the_one_before_ends(self, start: int, length: int) -> None:
        assert _read_all(_one_index(HEAD_OF_ONE, 5)) == {"c": {"n": b"abcde"}}
        with pytest.raises(CorruptFileError, match="index"):
            read_container(BytesReader.of(_one_index(start, length)))

    def test_a_negative_length_cannot_be_made_up_for_by_the_next_index(self) -> None:
        head_size = HEAD_OF_ONE + 3 + 8
        places = b"\0\1n" + _int32(head_size) + _int32(-3) + b"\0\1m" + _int32(head_size - 3) + _int32(8)
        head = _int32(1) + b"\0\1c" + _int32(2) + places + _int32(0)
        with pytest.raises(CorruptFileError, match="an index of -3 bytes"):
            read_container(BytesReader.of(_framed(head, b"abcde")))

    @pytest.mark.parametrize(
        "name", [b"\xed\xb8\x80", b"\0", b"\xff", b"\xc1\x81", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xe2\x82"]
    )
    def test_a_name_in_any_other_spelling_is_refused(self, name: bytes) -> None:
        with pytest.raises(CorruptFileError, match="not in modified UTF-8"):
            read_container(BytesReader.of(_one_index(HEAD_OF_ONE - 1 + len(name), 5, name=name)))

    def test_a_name_may_take_65535_bytes_and_no_more(self) -> None:
        for name in ("x" * 65535, "\0" * 32767 + "x", "雪" * 21845):
            assert _read_all(write_container({name: {}})) == {name: {}}
            with pytest.raises(UnsupportedError, match=r"takes 6553[6-8] bytes"):
                write_container({name + name[-1]: {}})

    def test_more_than_2_gib_cannot_be_written(self) -> None:
        mebibyte = bytes(1 << 20)
        with pytest.raises(UnsupportedError, match="the format ends at"):
            write_container({"c": {str(number): mebibyte for number in range(2048)}})


class TestModifiedUtf8:
    @pytest.mark.parametrize(
        ("text", "data"),
        [("a\0é€😀", "61 c080 c3a9 e282ac eda0bdedb880"), ("\x7f\x80\u07ff\u0800\uffff", "7f c280 dfbf e0a080 efbfbf")],
    )
    def test_has_javas_bytes(self, text: str, data: str) -> None:
        assert encode_modified_utf8(text) == bytes.fromhex(data)
        assert decode_modified_utf8(bytes.fromhex(data)) == text

    @given(
        data=st.binary(max_size=12) | st.lists(st.sampled_from([b"\xed\xa0\xbd", b"\xed\xb8\x80", b"a"])).map(b"".join)
    )
    def test_every_text_has_one_spelling(self, data: bytes) -> None:
        try:
            assert encode_modified_utf8(decode_modified_utf8(data)) == data
        except UnicodeError:
            return

    def test_half_a_surrogate_pair_is_no_text(self) -> None:
        with pytest.raises(UnicodeError):
            encode_modified_utf8("\ud800")


def test_map_keys_are_spelled_as_paimon_spells_them() -> None:
    assert map_key_column("tags", "color") == "tags[color]"


def _atoms(data: bytes) -> list[object]:
    return [
        atom
        for column, bodies in _read_all(data).items()
        for atom in (column, *(part for name, body in bodies.items() for part in (name, body)))
    ]


class TestDamage:
    def test_small_damage_is_an_error_or_changes_one_name_or_the_content_of_one_index(self) -> None:
        """The format has no checksum; but no damage moves an index or gives it another's bytes."""
        data = write_container(SMALL)
        intact = _atoms(data)
        for damaged in small_damages(data):
            try:
                found = _atoms(damaged)
            except DOCUMENTED:
                continue
            assert len(damaged) == len(data)
            assert len(found) == len(intact)
            (changed,) = [pair for pair in zip(found, intact, strict=True) if pair[0] != pair[1]]
            assert type(changed[0]) is type(changed[1])

    @given(damaged=damages(write_container(GOLDEN_INDEXES)))
    def test_any_damage_is_a_documented_error_or_a_container_that_would_be_written_so(self, damaged: bytes) -> None:
        try:
            found = _read_all(damaged)
        except DOCUMENTED:
            return
        rewritten = write_container(found)
        head_size = read_container(BytesReader.of(rewritten)).head_size
        # Only redundant bytes may be lost, and they lie between head and body.
        assert damaged[len(damaged) - len(rewritten) + head_size :] == rewritten[head_size:]
        assert len(rewritten) < len(damaged) or damaged == rewritten

    @given(head=st.binary(max_size=60))
    def test_any_head_is_a_container_or_a_documented_error(self, head: bytes) -> None:
        try:
            assert isinstance(_read_all(_framed(head)), dict)
        except DOCUMENTED:
            return
