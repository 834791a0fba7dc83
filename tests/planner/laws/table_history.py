"""What histories of tables share: a table of its own, its index, and what may happen to the index."""

from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, rule
from pyiceberg.catalog import Catalog

from puffin_index import TableIndex
from tests.conftest import amount, open_catalog


class IndexHistory(RuleBasedStateMachine):
    index: TableIndex
    names = step = 0

    def fresh(self) -> str:
        self.names += 1
        return f"c{self.names}"

    @rule()
    def expire(self) -> None:
        self.index.expire(timedelta(0))

    @rule()
    def verify(self) -> None:
        assert self.index.verify(None).findings == ()


class TableHistory(IndexHistory):
    def __init__(self, catalog: Catalog | None = None) -> None:
        super().__init__()
        self.opened = ExitStack()
        self.folder = Path(self.opened.enter_context(TemporaryDirectory()))
        self.catalog = catalog or self.opened.enter_context(open_catalog(self.folder))

    def teardown(self) -> None:
        self.opened.close()


def history_settings(few: int, many: int = 200, steps: int = 12) -> settings:
    """How many histories are tried, and how long they are."""
    return settings(
        max_examples=amount(few, many),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
