"""Merge sorted byte keys that may exceed memory: one range of keys at a time, spilled to an unnamed file.

Spilled keys are mapped into memory: users see an ordinary Arrow array, while the system can reclaim its pages. The
files have no names, so they vanish with the process, however the process ends.
"""

import tempfile
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.keys.byte_strings import seem_distinct, sort_keys
from puffin_index.keys.columns import sorted_keys_of
from puffin_index.keys.sorted_keys import bytes_of_keys
from puffin_index.storage.arrays import Rows

SPILL_BYTES = 64 * 1024 * 1024
"""The approximate bytes of keys to merge in memory."""

_SAMPLES_A_RANGE = 64


def merge_keys(
    arrays: Sequence[pa.LargeBinaryArray], spill_bytes: int = SPILL_BYTES
) -> tuple[pa.LargeBinaryArray, Sequence[Rows]]:
    """Merge arrays of distinct, ascending keys without NULLs, with about `spill_bytes` of them in memory.

    Return the distinct keys, ascending, and the place in them of each key of each array.
    """
    if len(arrays) == 1:
        return arrays[0], [np.arange(len(arrays[0]), dtype=np.uint32)]
    total_bytes = sum(len(bytes_of_keys(array)[0]) + 8 * len(array) for array in arrays)
    if total_bytes <= spill_bytes:
        return _merge_in_memory(arrays)
    bounds = _cut_ranges(arrays, -(-total_bytes // spill_bytes))
    ranks = [np.empty(len(array), np.uint32) for array in arrays]

    def merged() -> Iterable[pa.LargeBinaryArray]:
        first = 0
        for number in range(len(bounds[0]) - 1):
            spans = [slice(*own[number : number + 2]) for own in bounds]
            slices = [array[span] for array, span in zip(arrays, spans, strict=True)]
            keys, some = _merge_in_memory(slices)
            for whole, span, own in zip(ranks, spans, some, strict=True):
                whole[span] = own + np.uint32(first)
            first += len(keys)
            yield keys

    return spill(merged()), ranks


def spill(parts: Iterable[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    """Write arrays of keys, without NULLs, one after the other to a file, and map the file as one array."""
    with tempfile.TemporaryFile() as content, tempfile.TemporaryFile() as ends:
        count = size = 0
        ends.write(np.zeros(1, np.int64).tobytes())
        for part in parts:
            data, offsets = bytes_of_keys(part)
            content.write(data.data)
            ends.write((offsets[1:] + size).tobytes())
            size += len(data)
            count += len(part)
        content.flush()
        ends.flush()
        # An empty file cannot be mapped.
        mapped = np.memmap(content, np.uint8, "r", shape=(size,)) if size else np.empty(0, np.uint8)
        buffers = [None, pa.py_buffer(np.memmap(ends, np.int64, "r", shape=(count + 1,))), pa.py_buffer(mapped)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, buffers)


def rank_keys(arrays: Sequence[pa.LargeBinaryArray]) -> tuple[pa.LargeBinaryArray, Rows]:
    """Return the distinct keys of some arrays without NULLs, ascending, and the place of each key among them."""
    every = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    if seem_distinct(every):
        return sort_keys(every)
    encoded = every.dictionary_encode()
    keys, rank = sort_keys(encoded.dictionary)
    return keys, rank[encoded.indices.to_numpy()]


def _merge_in_memory(arrays: Sequence[pa.LargeBinaryArray]) -> tuple[pa.LargeBinaryArray, Sequence[Rows]]:
    keys, ranks = rank_keys(arrays)
    return keys, np.split(ranks, np.cumsum([len(array) for array in arrays])[:-1])


def _cut_ranges(arrays: Sequence[pa.LargeBinaryArray], count: int) -> list[list[int]]:
    """Cut all arrays at the same keys into about `count` ranges of similar size; return the places of the cuts."""
    total = sum(len(array) for array in arrays)
    step = max(1, total // (count * _SAMPLES_A_RANGE))
    sample = pa.concat_arrays([array.take(pa.array(np.arange(0, len(array), step))) for array in arrays])
    ordered = sample.take(pc.sort_indices(sample))
    places = np.linspace(0, len(ordered), count, endpoint=False)[1:].astype(np.int64)
    pivots = sorted(set(ordered.take(pa.array(places)).to_pylist()))
    searched = [sorted_keys_of(array) for array in arrays]
    return [[0, *(keys.rank(pivot, False) for pivot in pivots), len(keys)] for keys in searched]
