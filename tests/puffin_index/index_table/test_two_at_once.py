"""Two processes at once on one index: nothing lost, nothing doubled, nothing dangling."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.conftest import amount
from tests.puffin_index.indexed_table import check_entries, check_queries, indexed
from tests.puffin_index.jobs.upkeep_child import Child


@pytest.mark.parametrize("other", ["append-and-build", "compact", "expire"])
def test_a_builder_and_another(local_catalog: SqlCatalog, tmp_path: Path, other: str) -> None:
    index = indexed(local_catalog, 2)

    children = [Child(tmp_path, "append-and-build", repeat=amount(2, 5)), Child(tmp_path, other, repeat=amount(2, 5))]

    for child in children:
        code, errors = child.wait(180)
        assert code == 0, errors
    index.refresh()
    check_queries(index)
    # A builder that was late for the last append of the other one leaves it to the next build.
    index.build(workers=1)
    check_entries(index)
    check_queries(index)
