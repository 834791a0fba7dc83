"""The hashes of keys in bloom filters are those of Java, one value at a time."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from puffin_index.keys.value_types import FLOAT32
from puffin_index.kinds.bloom.filter import hashes_of_keys, wang_hashes


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
