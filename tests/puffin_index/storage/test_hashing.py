"""The hashes over whole arrays are those of the reference implementations, one value at a time."""

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings, strategies as st

from puffin_index.keys.value_types import FLOAT32
from puffin_index.kinds.bloom.filter import hashes_of_keys
from puffin_index.storage.hashing import wang_hashes, xxh64_many
from tests.conftest import amount


def hashes_of(values: list[bytes]) -> list[int]:
    """All hashes at once, the values lying apart from each other."""
    lengths = np.array([len(value) for value in values], np.int64)
    data = np.frombuffer(b"??" + b"??".join(values), np.uint8)
    hashes: list[int] = xxh64_many(data, np.cumsum(lengths + 2) - lengths, lengths).tolist()
    return hashes


@settings(max_examples=amount(12, 300), deadline=None)
@given(st.lists(st.binary(max_size=120), min_size=1, max_size=60))
def test_xxh64_of_many_strings_is_that_of_each(values: list[bytes]) -> None:
    assert hashes_of(values) == [xxhash.xxh64_intdigest(value) for value in values]


def test_xxh64_is_right_at_every_length() -> None:
    """Twenty of each length, so that the array path takes them; 1,024 bytes and more go one by one."""
    generator = np.random.default_rng(0)
    for length in [*range(100), 127, 128, 129, 1023, 1024, 1025]:
        values = [generator.bytes(length) for _ in range(20)]
        assert hashes_of(values) == [xxhash.xxh64_intdigest(value) for value in values]


def java_wang(key: int) -> int:
    """Thomas Wang's hash in Java's 64 bits: they wrap, and shifts to the right keep the sign."""

    def wrap(number: int) -> int:
        return (number + 2**63) % 2**64 - 2**63

    key = wrap(~key + wrap(key << 21))
    key ^= key >> 24
    key = wrap(wrap(key + wrap(key << 3)) + wrap(key << 8))
    key ^= key >> 14
    key = wrap(wrap(key + wrap(key << 2)) + wrap(key << 4))
    key ^= key >> 28
    return wrap(key + wrap(key << 31))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_wangs_hash_of_an_array_is_javas_of_each(numbers: list[int]) -> None:
    assert wang_hashes(np.array(numbers, np.int64)).tolist() == [java_wang(number) for number in numbers]


@pytest.mark.parametrize("key", [9_218_868_437_227_405_313, 4_611_686_018_427_387_905, 9_214_364_837_600_034_815])
def test_a_key_that_no_float_has_is_in_no_filter_of_floats(key: int) -> None:
    """A signalling NaN, a number between two floats, one beyond all of them."""
    assert len(hashes_of_keys((key,), FLOAT32)) == 0
