"""The law of the planner, for every type: no row that matches lies in a dropped row group, and numbers are right."""

import pytest

from tests.conftest import amount
from tests.planner.laws.pairs import run_table


@pytest.mark.parametrize("seed", range(amount(2, 40)))
def test_plans_counts_and_scans_agree_with_the_oracle_row_by_row(seed: int) -> None:
    assert run_table(seed, range(150)).failures == []
