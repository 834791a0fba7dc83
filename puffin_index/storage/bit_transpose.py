"""Transpose bit matrices by array operations, 8 by 8 bits in one integer."""

from __future__ import annotations

import numpy as np

from puffin_index.storage.arrays import Bytes

_TILE_BYTES = 128 * 1024
# Warren, Hacker's Delight, section 7-3: the steps swap single bits, then squares of 2 by 2 bits, then of 4 by 4 bits.
_STEPS = ((7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0x0000_0000_F0F0_F0F0))


def transpose_bits(bits: Bytes) -> Bytes:
    """Transpose a matrix of bits.

    Args:
        bits: Shape (rows, bytes): bit `c & 7` of byte `c >> 3` is column c. The number of rows is a multiple of 8.

    Returns:
        The columns as rows: shape (8 * bytes, rows / 8).
    """
    row_count, byte_count = bits.shape
    groups = row_count // 8
    turned = np.empty((byte_count, 8, groups), np.uint8)
    step = max(1, _TILE_BYTES // max(row_count, 1))
    for first in range(0, byte_count, step):
        width = min(step, byte_count - first)
        tile = bits[:, first : first + width].reshape(groups, 8, width)
        # The steps below work in place, so the words must be a copy of the input.
        words = tile.transpose(2, 0, 1).copy(order="C").view("<u8").reshape(width, groups)
        for shift, mask in _STEPS:
            changed = (words ^ (words >> np.uint64(shift))) & np.uint64(mask)
            words ^= changed ^ (changed << np.uint64(shift))
        turned[first : first + width] = words.view(np.uint8).reshape(width, groups, 8).transpose(0, 2, 1)
    return turned.reshape(8 * byte_count, groups)
