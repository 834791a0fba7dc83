import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, strategies as st

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.formats.puffin import (
    MAGIC,
    TAIL_BYTES,
    BlobMetadata,
    PuffinFile,
    PuffinWriter,
    check_head,
    read_blob,
    read_footer,
)
from puffin_index.storage.binary import Buffer
from puffin_index.storage.ranged import BytesReader
from tests.counting_reader import CountingReader
from tests.puffin_index.formats.damage import damages, small_damages

GOLDEN = Path(__file__).parents[2] / "golden"
DOCUMENTED = (CorruptFileError, UnsupportedError)


def _written(
    blobs: Iterable[tuple[str, Buffer, Sequence[int], Mapping[str, Any]]], created_by: str, properties: dict[str, str]
) -> tuple[bytes, PuffinFile]:
    """A file of blobs (type, content, fields, other arguments), and what the writer says of it."""
    stream = io.BytesIO()
    writer = PuffinWriter(stream, created_by=created_by, properties=properties)
    for blob_type, content, fields, others in blobs:
        expected = stream.tell()
        assert writer.add(blob_type, content, fields, **others).offset == expected
    summary = writer.finish()
    return stream.getvalue(), summary


def _golden_file() -> bytes:
    blobs: list[tuple[str, Buffer, Sequence[int], Mapping[str, Any]]] = [
        ("first-v1", b"abcdefghi", (1, 2147483647), {"properties": {"row": "10"}}),
        ("empty-v1", b"", (), {"snapshot_id": 9223372036854775807, "sequence_number": 34}),
        ("ünïcode-v1", memoryview(bytes(range(256))), [3], {"properties": {"naïve": '"quoted" \\ \n 😀', "A": ""}}),
    ]
    return _written(blobs, "golden", {"z": "last", "a": "erste — 雪 😀"})[0]


def _small_file() -> bytes:
    blobs = [("x", b"abc", (1,), {"properties": {"k": "v"}}), ("y", b"hello " * 6, (2,), {})]
    return _written(blobs, "t", {"p": "q"})[0]


def _framed(payload: bytes, *, blobs: bytes = b"", flags: bytes = bytes(4), payload_size: int | None = None) -> bytes:
    size = len(payload) if payload_size is None else payload_size
    return MAGIC + blobs + MAGIC + payload + size.to_bytes(4, "little", signed=True) + flags + MAGIC


def _with_footer(document: object, *, blobs: bytes = b"") -> bytes:
    return _framed(json.dumps(document).encode(), blobs=blobs)


def _blob(**changed: object) -> dict[str, object]:
    blob = {"type": "t", "fields": [1], "snapshot-id": 2, "sequence-number": 3, "offset": 4, "length": 5}
    return {name: value for name, value in {**blob, **changed}.items() if value is not ...}


def _open(data: bytes, footer_size: int | None = None, *, require_checksum: bool = False) -> PuffinFile:
    return read_footer(BytesReader.of(data), footer_size, require_checksum=require_checksum)


def _everything(data: bytes, *, require_checksum: bool = True) -> tuple[PuffinFile, list[bytes]]:
    """What a careful reader learns from a file."""
    reader = BytesReader.of(data)
    file = read_footer(reader, require_checksum=require_checksum)
    check_head(reader)
    return file, [bytes(read_blob(reader, blob)) for blob in file.blobs]


class TestWriter:
    def test_writes_the_golden_bytes(self) -> None:
        assert _golden_file() == (GOLDEN / "puffin_written.bin").read_bytes()

    def test_a_stream_that_takes_only_a_part_is_an_error(self) -> None:
        class Full(io.BytesIO):
            def write(self, data: object, /) -> int:
                assert data
                return 4

        writer = PuffinWriter(Full(), created_by="t")
        with pytest.raises(OSError, match="4 of 9"):
            writer.add("a", b"123456789")

    def test_half_a_surrogate_pair_is_refused(self) -> None:
        writer = PuffinWriter(io.BytesIO(), created_by="\ud800")
        with pytest.raises(ValueError, match="surrogate"):
            writer.finish()


TEXTS = st.text(max_size=8)
PROPERTIES = st.dictionaries(TEXTS.filter(lambda name: name not in ("xxh64", "created-by", "footer-xxh64")), TEXTS)
INT64S = st.integers(-(2**63), 2**63 - 1)
BLOBS = st.tuples(TEXTS, st.binary(max_size=60), st.lists(st.integers(-(2**31), 2**31 - 1)), INT64S, INT64S, PROPERTIES)


@given(blobs=st.lists(BLOBS, max_size=4), properties=PROPERTIES, created_by=TEXTS)
def test_what_is_written_is_read_back(
    blobs: list[tuple[str, bytes, list[int], int, int, dict[str, str]]], properties: dict[str, str], created_by: str
) -> None:
    def write(
        of: Callable[[dict[str, str]], dict[str, str]], buffer: Callable[[bytes], Buffer]
    ) -> tuple[bytes, PuffinFile]:
        given = [
            (
                blob_type,
                buffer(content),
                fields,
                {"snapshot_id": snapshot_id, "sequence_number": number, "properties": of(own)},
            )
            for blob_type, content, fields, snapshot_id, number, own in blobs
        ]
        return _written(given, created_by, of(properties))

    data, summary = write(dict, bytes)
    file, contents = _everything(data)
    assert file == _open(data, summary.footer_size)
    assert (summary.blobs, summary.file_size, summary.footer_size) == (file.blobs, len(data), file.footer_size)
    assert [
        (b.type, content, list(b.fields), b.snapshot_id, b.sequence_number, _without(b.properties, "xxh64"))
        for b, content in zip(file.blobs, contents, strict=True)
    ] == blobs
    assert _without(file.properties, "footer-xxh64") == {**properties, "created-by": created_by}
    assert write(lambda own: dict(reversed(own.items())), bytearray)[0] == data


def _without(properties: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: text for key, text in properties.items() if key != name}


class TestGoldenFiles:
    def test_own_file_with_a_zstd_blob(self) -> None:
        """Only read: another release of zstd may write other bytes."""
        file, contents = _everything((GOLDEN / "puffin_written_zstd.bin").read_bytes())
        assert [blob.compression_codec for blob in file.blobs] == [None, "zstd", "zstd"]
        assert contents == [b"plain", b"squeeze " * 100, b""]

    def test_java_file_without_compression(self) -> None:
        data = (GOLDEN / "puffin_java_uncompressed.bin").read_bytes()
        file, contents = _everything(data, require_checksum=False)
        assert file.properties == {"created-by": "Java writer", "title": "雪 😀"}
        assert file.blobs == (
            BlobMetadata("first", (1,), 2, 1, 4, 9),
            BlobMetadata("second-ü", (2, 3), 2**63 - 1, -1, 13, 0, None, {"naïve": "ü 😀", "empty": ""}),
            BlobMetadata("third", (), -1, -1, 13, 4),
        )
        assert contents == [b"abcdefghi", b"", b"\x00\xff\x00\xff"]

    def test_java_file_with_zstd(self) -> None:
        data = (GOLDEN / "puffin_java_zstd.bin").read_bytes()
        file, contents = _everything(data, require_checksum=False)
        assert [blob.compression_codec for blob in file.blobs] == ["zstd", None, "zstd"]
        assert contents == [b"again and " * 50, b"not compressed", b""]


class TestOpening:
    def test_a_footer_of_known_size_or_of_a_small_file_is_read_once(self) -> None:
        data = _golden_file()
        footer_size = _open(data).footer_size
        for known, place in ((footer_size, (len(data) - footer_size, footer_size)), (None, (0, len(data)))):
            reader = CountingReader(data)
            read_footer(reader, known)
            assert reader.reads == [place]

    @pytest.mark.parametrize(("footer_size", "reads"), [(TAIL_BYTES, 1), (TAIL_BYTES + 1, 2), (3 * TAIL_BYTES, 2)])
    def test_takes_a_second_read_only_for_a_footer_longer_than_the_tail(self, footer_size: int, reads: int) -> None:
        def build(padding: int) -> tuple[bytes, int]:
            data, summary = _written([("a", bytes(50_000), (1,), {})], "t", {"padding": "x" * padding})
            return data, summary.footer_size

        data, size = build(footer_size - build(0)[1])
        assert size == footer_size
        reader = CountingReader(data)
        assert len(read_footer(reader).blobs) == 1
        assert len(reader.reads) == reads
        assert sum(length for _, length in reader.reads) == max(TAIL_BYTES, footer_size)

    def test_a_footer_size_that_the_file_does_not_confirm_is_refused(self) -> None:
        data = _small_file()
        footer_size = _open(data).footer_size
        for wrong in (footer_size - 1, footer_size + 1, 15, 0, -1, len(data) - 3, len(data) + 1):
            with pytest.raises(CorruptFileError, match="footer"):
                _open(data, wrong)

    def test_the_smallest_file_has_32_bytes_and_fewer_than_20_are_never_one(self) -> None:
        smallest = _framed(b'{"blobs":[]}')
        assert (len(smallest), _open(smallest).blobs) == (32, ())
        with pytest.raises(CorruptFileError, match="not JSON"):
            _open(_framed(b""))
        with pytest.raises(CorruptFileError, match="19 bytes are too few"):
            _open(_framed(b"")[1:])

    @pytest.mark.parametrize("payload_size", [-1, -(2**31), 13, 2**31 - 1])
    def test_a_payload_size_beyond_the_file_is_refused_before_anything_is_read(self, payload_size: int) -> None:
        with pytest.raises(CorruptFileError, match=f"footer payload of {payload_size} bytes"):
            _open(_framed(b'{"blobs":[]}', payload_size=payload_size))

    @pytest.mark.parametrize("at", ["head", "footer", "end"])
    def test_each_magic_is_checked_and_another_version_is_named(self, at: str) -> None:
        data = _small_file()
        place = {"head": 0, "footer": len(data) - _open(data).footer_size, "end": len(data) - 4}[at]
        other, later = (data[:place] + magic + data[place + 4 :] for magic in (b"PAR1", b"PFA9"))
        if at == "head":  # it costs a read of its own
            assert _open(other) == _open(later) == _open(data)
        with pytest.raises(CorruptFileError, match="not a Puffin file") as caught:
            _everything(other)
        assert caught.value.offset == place
        with pytest.raises(UnsupportedError, match="version b'9'"):
            _everything(later)

    @pytest.mark.parametrize("bit", range(1, 32))
    def test_a_compressed_footer_and_every_other_flag_are_refused(self, bit: int) -> None:
        for flags, said in (
            (1, "footer is LZ4-compressed"),
            *((bits, "unknown Puffin flags") for bits in (1 << bit, 1 << bit | 1)),
        ):
            with pytest.raises(UnsupportedError, match=said):
                _open(_framed(b'{"blobs":[]}', flags=flags.to_bytes(4, "little")))


class TestFooterPayload:
    def test_members_that_the_format_does_not_know_are_passed_over_and_a_null_codec_is_none(self) -> None:
        blob = _blob(later=[1.5, None], **{"compression-codec": None})
        data = _with_footer({"blobs": [blob], "later": {"a": True}}, blobs=bytes(5))
        assert _open(data).blobs == (BlobMetadata("t", (1,), 2, 3, 4, 5),)

    @pytest.mark.parametrize(
        ("document", "reason"),
        [
            ([], "Input should be an object"),
            ({}, "blobs: Field required"),
            ({"blobs": {}}, "blobs: Input should be a valid array"),
            ({"blobs": [1]}, r"blobs\[0\]: Input should be an object"),
            ({"blobs": [_blob(), _blob(type=...)]}, r"blobs\[1\].type: Field required"),
            ({"blobs": [_blob(type="\ud800")]}, "Invalid JSON: unexpected end of hex escape"),
            ({"blobs": [], "properties": []}, "properties: Input should be an object"),
            ({"blobs": [], "properties": {"a": None}}, "properties.a: Input should be a valid string"),
        ],
    )
    def test_a_wrong_shape_is_named(self, document: object, reason: str) -> None:
        with pytest.raises(CorruptFileError, match=reason) as caught:
            _open(_with_footer(document, blobs=bytes(5)))
        assert caught.value.offset == 4 + 5 + 4

    @pytest.mark.parametrize("name", [*_blob(), "properties", "compression-codec"])
    def test_each_member_of_a_blob_has_its_type(self, name: str) -> None:
        wrong: list[object] = [True, 1.0, {"a": 1}, ["1"], [2**31], [None]]
        wrong += [None] if name != "compression-codec" else []
        wrong += [...] if name in _blob() else []
        wrong += [7] if name in ("type", "properties", "compression-codec") else ["1", 2**63, -(2**63) - 1]
        for value in wrong:
            with pytest.raises(CorruptFileError, match=rf"Puffin footer: blobs\[0\]\.{name}"):
                _open(_with_footer({"blobs": [_blob(**{name: value})]}, blobs=bytes(5)))

    @pytest.mark.parametrize(
        "payload",
        [
            b"{",
            b"\xff",
            b'{"blobs":[]} x',
            b'{"blobs":[],"blobs":[]}',
            b"[" * 100_000,
            b'{"blobs":' + b"9" * 5000 + b"}",
            b"\xef\xbb\xbf{}",
        ],
    )
    def test_what_is_not_plain_json_is_refused(self, payload: bytes) -> None:
        with pytest.raises(CorruptFileError, match="Puffin footer"):
            _open(_framed(payload))

    @pytest.mark.parametrize(
        ("offset", "length", "inside"),
        [
            (4, 5, True),
            (4, 6, False),
            (5, 5, False),
            (3, 5, False),
            (9, 0, True),
            (10, 0, False),
            (4, -1, False),
            (-1, 0, False),
            (4, 2**63 - 1, False),
        ],
    )
    def test_a_blob_lies_between_head_and_footer(self, offset: int, length: int, inside: bool) -> None:
        data = _with_footer({"blobs": [_blob(offset=offset, length=length)]}, blobs=bytes(5))
        if inside:
            assert _open(data).blobs[0].length == length
            return
        with pytest.raises(CorruptFileError, match=r"do not lie in 4\.\.9"):
            _open(data)

    def test_an_lz4_blob_is_listed_and_another_codec_refused_by_name(self) -> None:
        document = {"blobs": [_blob(**{"compression-codec": "lz4"}), _blob(offset=9)]}
        reader = BytesReader.of(_with_footer(document, blobs=b"lz4..plain"))
        lz4, plain = read_footer(reader).blobs
        assert lz4.compression_codec == "lz4"
        assert bytes(read_blob(reader, plain)) == b"plain"
        with pytest.raises(UnsupportedError, match="lz4"):
            read_blob(reader, lz4)
        with pytest.raises(UnsupportedError, match="'snappy'"):
            _open(_with_footer({"blobs": [_blob(**{"compression-codec": "snappy"})]}, blobs=bytes(5)))

    def test_the_checksum_is_over_values_and_not_over_their_spelling(self) -> None:
        data = _small_file()
        file = _open(data)
        payload = data[len(data) - file.footer_size + 4 : -12]
        respelled = json.dumps(json.loads(payload), indent=3, sort_keys=True).encode()
        other = _open(_framed(respelled, blobs=data[4 : len(data) - file.footer_size]), require_checksum=True)
        assert (other.blobs, other.properties) == (file.blobs, file.properties)

    def test_a_file_of_another_writer_needs_no_checksum_unless_asked_for(self) -> None:
        data = _with_footer({"blobs": []})
        assert _open(data).properties == {}
        with pytest.raises(CorruptFileError, match="footer-xxh64"):
            _open(data, require_checksum=True)


def _zstd_reader(frame: bytes, **properties: str) -> tuple[BytesReader, BlobMetadata]:
    blob = _blob(length=len(frame), properties=properties, **{"compression-codec": "zstd"})
    reader = BytesReader.of(_with_footer({"blobs": [blob]}, blobs=frame))
    return reader, read_footer(reader).blobs[0]


def _zstd_frame(declared: int, content: bytes) -> bytes:
    """A frame of one raw block that declares any content size."""
    block = ((len(content) << 3) | 1).to_bytes(3, "little") + content
    return b"\x28\xb5\x2f\xfd\xe0" + declared.to_bytes(8, "little") + block


class TestReadingBlobs:
    def test_a_damaged_blob_is_noticed(self) -> None:
        data = bytearray(_small_file())
        data[4] ^= 1
        reader = BytesReader.of(data, "f")
        blob = read_footer(reader).blobs[0]
        with pytest.raises(CorruptFileError, match="blob 'x' of 3 bytes has xxh64") as caught:
            read_blob(reader, blob)
        assert (caught.value.location, caught.value.offset) == ("f", 4)

    def test_metadata_from_elsewhere_is_checked_against_the_file(self) -> None:
        reader = BytesReader.of(_small_file())
        for offset, length in ((reader.size - 1, 2), (-1, 2), (0, -1)):
            stray = BlobMetadata("x", (), -1, -1, offset, length)
            with pytest.raises(CorruptFileError):
                read_blob(reader, stray)

    @pytest.mark.parametrize(
        ("declared", "reason"),
        [
            *((declared, "not a zstd frame") for declared in (2, 4, 10_000)),
            # So much is not even allocated.
            (1 << 30, f"a zstd frame with {1 << 30} bytes"),
        ],
    )
    def test_a_frame_that_lies_about_its_content_size_is_refused(self, declared: int, reason: str) -> None:
        assert bytes(read_blob(*_zstd_reader(_zstd_frame(3, b"abc")))) == b"abc"
        with pytest.raises(CorruptFileError, match=reason):
            read_blob(*_zstd_reader(_zstd_frame(declared, b"abc")))

    def test_content_beyond_the_limit_is_refused_by_its_size(self) -> None:
        with pytest.raises(UnsupportedError, match="1073741825 bytes, limit 1073741824"):
            read_blob(*_zstd_reader(_zstd_frame((1 << 30) + 1, b"abc")))

    def test_the_most_compressible_content_is_still_believed(self) -> None:
        frame = zstandard.ZstdCompressor(level=19).compress(bytes(32 << 20))
        assert len(read_blob(*_zstd_reader(frame))) == 32 << 20

    @pytest.mark.parametrize(
        "frame",
        [
            b"",
            b"not zstd",
            zstandard.ZstdCompressor().compress(b"abc") + b"x",
            zstandard.ZstdCompressor().compress(b"abc") * 2,
            zstandard.ZstdCompressor().compress(b"abc")[:-1],
            b"\x50\x2a\x4d\x18\x03\0\0\0abc",
            zstandard.ZstdCompressor(write_content_size=False).compress(b"abc" * 10),
        ],
        ids=["nothing", "other bytes", "a byte too many", "two frames", "cut short", "skippable", "of unknown size"],
    )
    def test_only_a_single_whole_frame_is_taken(self, frame: bytes) -> None:
        with pytest.raises(CorruptFileError, match="zstd frame"):
            read_blob(*_zstd_reader(frame))


def _is_refused(data: bytes, *, require_checksum: bool = True) -> bool:
    try:
        _everything(data, require_checksum=require_checksum)
    except DOCUMENTED:
        return True
    return False


class TestDamage:
    def test_any_small_damage_gives_an_error_or_what_was_written(self) -> None:
        """With head, footer checksum and blob checksums looked at, no byte of a file is unprotected.

        Damage to the names `footer-xxh64` or `properties` hides the checksum from a reader that does not insist on it,
        but then nothing else is damaged.
        """
        data = _small_file()
        intact, contents = _everything(data)
        refused = 0
        for damaged in small_damages(data):
            try:
                file, own = _everything(damaged, require_checksum=False)
            except DOCUMENTED:
                refused += 1
                continue
            assert (file.blobs, own) == (intact.blobs, contents)
            assert _is_refused(damaged) or file == intact
        assert refused > 8 * len(data)

    def test_a_file_without_any_checksum_still_fails_only_as_documented(self) -> None:
        for damaged in small_damages((GOLDEN / "puffin_java_zstd.bin").read_bytes()):
            _is_refused(damaged, require_checksum=False)

    @given(damaged=damages(_small_file()))
    def test_any_damage_gives_an_error_or_what_was_written(self, damaged: bytes) -> None:
        """Bytes between the last blob and the footer belong to nothing: the format allows them."""
        if not _is_refused(damaged):
            (file, contents), (intact, written) = _everything(damaged), _everything(_small_file())
            assert (replace(file, file_size=intact.file_size), contents) == (intact, written)

    @given(
        st.binary(max_size=80)
        | st.binary(max_size=80).map(_framed)
        | st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.just([_blob()]) | st.just(_blob()),
            lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["blobs", "properties", *_blob()]), inner),
        ).map(lambda document: _with_footer(document, blobs=bytes(5)))
    )
    def test_any_bytes_and_any_json_are_a_file_or_a_documented_error(self, data: bytes) -> None:
        _is_refused(data, require_checksum=False)
