"""Names for the numpy arrays of this project, all of one dimension unless a docstring says otherwise."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]
"""Unsigned 64-bit integers: packed numbers, hashes, keys."""
Rows: TypeAlias = npt.NDArray[np.uint32]
"""Row numbers."""

Selection: TypeAlias = Ints | slice
"""Elements of an array: their places, or a slice, which numpy takes without a copy."""
