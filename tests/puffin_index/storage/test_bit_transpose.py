"""Matrices of bits with rows and columns changed."""

import numpy as np
import pytest

from puffin_index.storage.bit_packing import transpose_bits


@pytest.mark.parametrize("shape", [(0, 3), (8, 0), (8, 1), (16, 3), (1000, 1234)])
def test_every_bit_lies_where_row_and_column_change_places(shape: tuple[int, int]) -> None:
    bits = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    columns = np.unpackbits(bits, axis=1, bitorder="little").T
    turned = transpose_bits(bits)
    assert turned.shape == (8 * shape[1], shape[0] // 8)
    assert (turned == np.packbits(columns, axis=1, bitorder="little")).all()
    assert (transpose_bits(turned) == bits).all()
