"""Names for the numpy arrays that this project works on, all of one dimension unless a docstring says otherwise."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]
"""64 bits each: packed numbers, hashes, unsigned keys."""
Rows: TypeAlias = npt.NDArray[np.uint32]
"""Row numbers."""

Selection: TypeAlias = Ints | slice
"""Elements of an array: by their places, or a run of neighbours, which numpy takes without a copy."""
