"""Of a data file that is read whole or not at all, all row groups are kept or none, and nothing else changes."""

import numpy as np
from hypothesis import given, strategies as st

from planner.prune.verdicts import Reason, kept_mask
from planner.snapshot.scan import keep_whole_files

FILES = 5


@given(
    st.lists(
        st.tuples(st.integers(0, FILES - 1), st.sampled_from([one for one in Reason if one != Reason.READ_WHOLE]))
    ),
    st.lists(st.booleans(), min_size=FILES, max_size=FILES),
)
def test_a_row_group_is_kept_if_it_is_read(row_groups: list[tuple[int, Reason]], are_read_whole: list[bool]) -> None:
    file_of = np.array([file for file, _ in row_groups], np.int64)
    reasons = np.array([reason for _, reason in row_groups], np.uint8)

    told = keep_whole_files(reasons, file_of, np.array(are_read_whole, np.bool_)[file_of])

    files_read = {file for file, reason in row_groups if not reason.drops}
    for (file, reason), now, is_kept in zip(row_groups, told.tolist(), kept_mask(told).tolist(), strict=True):
        assert is_kept == (not reason.drops or (are_read_whole[file] and file in files_read))
        assert now == (Reason.READ_WHOLE if is_kept and reason.drops else reason)
