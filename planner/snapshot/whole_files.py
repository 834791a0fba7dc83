"""Data files that readers of byte ranges read whole or not at all: no part of such a file counts as dropped."""

from __future__ import annotations

import numpy as np

from planner.prune.pruned import Reason, kept_mask
from puffin_index.storage.arrays import Bytes, Flags, Ints


def keep_whole_files(reasons: Bytes, file_of: Ints, is_read_whole: Flags) -> Bytes:
    """Keep row groups that a reader has to read because another row group of the same data file is kept.

    Args:
        reasons: For each row group a `Reason` value.
        file_of: For each row group the number of its data file.
        is_read_whole: For each row group whether its data file is read whole or not at all.

    Returns:
        The reasons that hold for a reader of byte ranges.
    """
    if not is_read_whole.any():
        return reasons
    kept = kept_mask(reasons)
    is_read_along = ~kept & is_read_whole & np.isin(file_of, file_of[kept])
    return np.where(is_read_along, np.uint8(Reason.READ_WHOLE), reasons)
