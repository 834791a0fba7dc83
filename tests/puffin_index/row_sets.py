"""Row sets with containers of every form, for all tests."""

from hypothesis import strategies as st
from pyroaring import BitMap

ROWS = 400_000


@st.composite
def row_sets(draw: st.DrawFn, row_count: int = ROWS) -> BitMap:
    """Single rows, runs, dense and sparse stretches, in one block or several, written with runs or without."""
    rows = BitMap()
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, row_count - 1))
        step = draw(st.sampled_from((1, 1, 2, 7, 5000)))
        count = draw(st.sampled_from((1, 2, 3, 4, 5, 100, 4095, 4096, 4097, 70_000)))
        rows |= BitMap(range(start, min(start + step * count, row_count), step))
    if draw(st.booleans()):
        rows.run_optimize()
    return rows
