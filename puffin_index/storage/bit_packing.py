"""Streams of bit-packed unsigned numbers: number i takes `width` bits from bit i * width on, lowest bit first.

Bit b of a stream is bit b & 7 of its byte b >> 3. A stream of n numbers takes ceil(n * width / 8) bytes, none if the
width is 0. The same array operations pack or unpack all streams of one width at once.
"""

import numpy as np

from puffin_index.storage.arrays import Bytes, Ints, Words

MAXIMUM_WIDTH = 64
SLACK_BYTES = MAXIMUM_WIDTH + 8
"""`unpack_streams` may read up to this many bytes behind the last stream."""

_WORD_BITS = 64
_LANES = 8
_FEW_NUMBERS = 16 * 1024
"""Up to so many numbers, whatever their widths, one gather is faster than unpacking each width by itself."""

_GATHERED_WIDTH = 57
"""A word of 8 bytes has all bits of a number up to this width, at whatever bit of its first byte the number begins."""

_POWERS = np.uint64(1) << np.arange(_WORD_BITS, dtype=np.uint64)


def bit_lengths(numbers: Words) -> Ints:
    """Return the number of significant bits of each number; 0 for 0."""
    return np.searchsorted(_POWERS, numbers, "right").astype(np.int64)


def packed_bytes(counts: Ints, widths: Ints) -> Ints:
    """Return the length in bytes of streams, given their counts of numbers and their widths."""
    lengths: Ints = (counts * widths + 7) >> 3
    return lengths


def bounds_of_streams(numbers: Words, ends: Ints) -> tuple[Words, Words]:
    """Return the least and greatest number of each stream, 0 for none; stream i begins at `ends[i]`."""
    least, most = np.zeros(len(ends) - 1, np.uint64), np.zeros(len(ends) - 1, np.uint64)
    used = ends[1:] > ends[:-1]
    if used.any():
        # Empty streams are left out: reduceat would give them the first number of the next stream.
        least[used] = np.minimum.reduceat(numbers, ends[:-1][used])
        most[used] = np.maximum.reduceat(numbers, ends[:-1][used])
    return least, most


def pack_streams(numbers: Words, ends: Ints, widths: Ints) -> list[memoryview]:
    """Return the bytes of streams of these widths, 0 to 64; each number is less than 2 ** width of its stream.

    `ends` has the start of each stream, then the length of `numbers`.
    """
    packed = [memoryview(b"")] * len(widths)
    for width in _used(widths, np.diff(ends)):
        chosen = np.flatnonzero((widths == width) & (ends[1:] > ends[:-1]))
        counts = (ends[1:] - ends[:-1])[chosen]
        places = _padded_places(counts)
        padded = np.zeros(places[-1], np.uint64)
        for stream, place in zip(chosen.tolist(), places.tolist(), strict=False):
            some = numbers[ends[stream] : ends[stream + 1]]
            padded[place : place + len(some)] = some
        data = _pack(padded, width).data
        starts = (places[:-1] * width >> 3).tolist()
        lengths = packed_bytes(counts, np.array(width)).tolist()
        for stream, start, length in zip(chosen.tolist(), starts, lengths, strict=True):
            packed[stream] = data[start : start + length]
    return packed


def _padded_places(counts: Ints) -> Ints:
    """Return the start of each stream padded to a multiple of 8 numbers, followed by the end of the last stream.

    Padded streams begin at whole bytes, so all streams of one width can be packed as one.
    """
    return np.concatenate(([0], np.cumsum(-(-counts // _LANES) * _LANES)))


def _pack(numbers: Words, width: int) -> Bytes:
    """Pack a multiple of 8 numbers.

    8 numbers of `width` bits fill exactly `width` bytes. So all numbers of one lane (their place modulo 8) have the
    same place within their `width` bytes, and one shift of arrays packs the whole lane.
    """
    lanes = numbers.reshape(-1, _LANES)
    words = np.zeros((-(-_LANES * width // _WORD_BITS), len(lanes)), np.uint64)
    for lane in range(_LANES):
        word, shift = divmod(lane * width, _WORD_BITS)
        words[word] |= lanes[:, lane] << np.uint64(shift)
        if shift + width > _WORD_BITS:
            words[word + 1] |= lanes[:, lane] >> np.uint64(_WORD_BITS - shift)
    data = np.ascontiguousarray(words.T).astype("<u8", copy=False).view(np.uint8)
    return np.ascontiguousarray(data[:, :width]).reshape(-1)


def unpack_streams(raw: memoryview, starts: Ints, counts: Ints, widths: Ints) -> Words:
    """Return the numbers of streams, by start, count and width (0 to 64), one stream after the other.

    `SLACK_BYTES` more bytes follow the last stream.
    """
    if int(counts.sum()) <= _FEW_NUMBERS and int(widths.max(initial=0)) <= _GATHERED_WIDTH:
        return _gathered(raw, starts, counts, widths)
    if len(counts) == 1 and counts[0] > 0 and widths[0] > 0:
        start, count, width = int(starts[0]), int(counts[0]), int(widths[0])
        return _unpack(raw[start:], width, -(-count // _LANES) * _LANES)[:count]
    ends = np.concatenate(([0], np.cumsum(counts)))
    numbers = np.zeros(ends[-1], np.uint64)
    for width in _used(widths, counts):
        chosen = np.flatnonzero((widths == width) & (counts > 0))
        places = _padded_places(counts[chosen])
        lengths = (np.diff(places) * width >> 3).tolist()
        slices = [raw[start : start + length] for start, length in zip(starts[chosen].tolist(), lengths, strict=True)]
        unpacked = _unpack(b"".join((*slices, bytes(_LANES))), width, int(places[-1]))
        if len(unpacked) == len(numbers) and len(chosen) == np.count_nonzero(counts):  # every stream, without padding
            return unpacked
        begins = zip(chosen.tolist(), places.tolist(), strict=False)
        for stream, place in begins:
            numbers[ends[stream] : ends[stream + 1]] = unpacked[place : place + counts[stream]]
    return numbers


def _gathered(raw: memoryview, starts: Ints, counts: Ints, widths: Ints) -> Words:
    """Unpack streams of any widths up to `_GATHERED_WIDTH`: the word at the first byte of a number has all its bits."""
    words = np.ndarray((len(raw) - 7,), "<u8", raw, 0, (1,))
    bits = np.arange(int(counts.sum())) * np.repeat(widths, counts)
    bits += np.repeat(8 * starts - (np.cumsum(counts) - counts) * widths, counts)
    numbers: Words = words[bits >> 3]
    numbers >>= (bits & 7).view(np.uint64)
    numbers &= np.repeat((np.uint64(1) << widths.view(np.uint64)) - np.uint64(1), counts)
    return numbers


def _used(widths: Ints, counts: Ints) -> list[int]:
    return sorted(set(widths[counts > 0].tolist()) - {0})


def _unpack(data: bytes | memoryview, width: int, count: int) -> Words:
    """Unpack a multiple of 8 numbers; 8 more bytes must follow them.

    The numbers of one lane (see `_pack`) lie `width` bytes apart, at the same bit of a byte: a strided array of
    overlapping words reads the whole lane without a copy. A number that leaves its word has its upper bits in the next
    byte.
    """
    rows = count // _LANES
    numbers = np.empty((rows, _LANES), np.uint64)
    mask = np.uint64((1 << width) - 1)
    for lane in range(_LANES):
        byte, shift = divmod(lane * width, 8)
        found = np.ndarray((rows,), "<u8", data, byte, (width,)) >> np.uint64(shift)
        if shift + width > _WORD_BITS:
            above = np.ndarray((rows,), np.uint8, data, byte + 8, (width,)).astype(np.uint64)
            found |= above << np.uint64(_WORD_BITS - shift)
        found &= mask
        numbers[:, lane] = found
    return numbers.reshape(-1)
