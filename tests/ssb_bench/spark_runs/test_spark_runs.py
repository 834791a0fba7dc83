"""How row groups of lineorder are cut into pages."""

import pytest

from ssb_bench.spark_runs.load import page_rows


@pytest.mark.parametrize(
    ("row_group_rows", "rows_of_a_page"),
    [
        (1, 1),
        (1_000, 1_000),
        (20_000, 20_000),
        (50_000, 12_500),
        (250_000, 15_625),
        (245_760, 16_384),
        (100_003, 100_003),
    ],
)
def test_pages_are_even_parts_of_row_groups(row_group_rows: int, rows_of_a_page: int) -> None:
    assert page_rows(row_group_rows) == rows_of_a_page
