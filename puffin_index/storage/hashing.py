"""The hashes of the formats, computed for whole arrays: xxh64 of byte strings, Thomas Wang's hash of integers."""

import numpy as np
import xxhash

from puffin_index.storage.arrays import Bytes, Ints, Words, ramps

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_STRIPE_BYTES = 32
# From this length on, or for so few ranges of one length, hashing one at a time is no slower.
_LONG_BYTES = 1024
_FEW = 16
_CHUNK_BYTES = 4 * 1024 * 1024


def xxh64_many(data: Bytes, starts: Ints, lengths: Ints) -> Words:
    """Return the xxh64 (seed 0) of many ranges of some bytes.

    All ranges of one length take the same steps, so array operations hash them together.
    """
    hashes = np.empty(len(starts), np.uint64)
    if not len(starts):
        return hashes
    by_length = np.argsort(lengths, kind="stable")
    ordered = lengths[by_length]
    bounds = np.flatnonzero(np.diff(ordered, prepend=-1, append=-1))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        length = int(ordered[low])
        if length >= _LONG_BYTES or high - low < _FEW:
            view = data.data
            for index in by_length[low:high].tolist():
                hashes[index] = xxhash.xxh64_intdigest(view[starts[index] : starts[index] + length])
            continue
        step = max(1, _CHUNK_BYTES // max(length, 1))
        for first in range(low, high, step):
            some = by_length[first : min(first + step, high)]
            hashes[some] = _xxh64_rows(_gather(data, starts[some], length))
    return hashes


def _gather(data: Bytes, starts: Ints, length: int) -> Bytes:
    """Return ranges of one length as rows, without a copy if the ranges are adjacent."""
    if int(starts[-1] - starts[0]) == length * (len(starts) - 1) and bool((np.diff(starts) == length).all()):
        return data[starts[0] : starts[0] + length * len(starts)].reshape(len(starts), length)
    return data[ramps(starts, np.full(len(starts), length))].reshape(len(starts), length)


def _xxh64_rows(rows: Bytes) -> Words:
    length = rows.shape[1]
    with np.errstate(over="ignore"):
        if length >= _STRIPE_BYTES:
            state, done = _stripes(rows)
        else:
            state, done = np.full(len(rows), _PRIME_5), 0
        state += np.uint64(length)
        while done + 8 <= length:
            state = _rotate(state ^ _round(np.uint64(0), _words(rows, done)), 27) * _PRIME_1 + _PRIME_4
            done += 8
        if done + 4 <= length:
            half = np.ascontiguousarray(rows[:, done : done + 4]).view("<u4").reshape(-1).astype(np.uint64)
            state = _rotate(state ^ (half * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
            done += 4
        for index in range(done, length):
            state = _rotate(state ^ (rows[:, index].astype(np.uint64) * _PRIME_5), 11) * _PRIME_1
        state = (state ^ (state >> np.uint64(33))) * _PRIME_2
        state = (state ^ (state >> np.uint64(29))) * _PRIME_3
        return state ^ (state >> np.uint64(32))


def _stripes(rows: Bytes) -> tuple[Words, int]:
    """Consume all whole stripes of 32 bytes; return the state and the number of consumed bytes."""
    zero = np.zeros(len(rows), np.uint64)
    lanes = [zero + (_PRIME_1 + _PRIME_2), zero + _PRIME_2, zero, zero - _PRIME_1]
    whole = rows.shape[1] // _STRIPE_BYTES * _STRIPE_BYTES
    for start in range(0, whole, _STRIPE_BYTES):
        lanes = [_round(lane, _words(rows, start + 8 * index)) for index, lane in enumerate(lanes)]
    state = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
    for lane in lanes:
        state = (state ^ _round(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4
    return state, whole


def _words(rows: Bytes, start: int) -> Words:
    words: Words = np.ascontiguousarray(rows[:, start : start + 8]).view("<u8").reshape(-1)
    return words


def _round(state: Words | np.uint64, words: Words) -> Words:
    return _rotate(state + words * _PRIME_2, 31) * _PRIME_1


def _rotate(words: Words, by: int) -> Words:
    rotated: Words = (words << np.uint64(by)) | (words >> np.uint64(64 - by))
    return rotated


def wang_hashes(numbers: Ints) -> Ints:
    """Return Thomas Wang's 64-bit hash of each number, with arithmetic shifts to the right (seed 002)."""
    key: Ints = numbers << np.int64(21)
    key += ~numbers
    shifted = key >> np.int64(24)
    key ^= shifted
    key *= np.int64(265)
    np.right_shift(key, np.int64(14), out=shifted)
    key ^= shifted
    key *= np.int64(21)
    np.right_shift(key, np.int64(28), out=shifted)
    key ^= shifted
    key *= np.int64(1 + (1 << 31))
    return key
