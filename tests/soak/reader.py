"""A long-lived process that asks: python -m tests.soak.reader WORLD.json SEED.

Each answer with the index is compared with PyArrow's over PyIceberg's own scan of the same snapshot.
"""

import logging
import sys
from random import Random

import pyarrow as pa
import pyarrow.compute as pc

import planner
from puffin_index import TableIndex
from puffin_index.commands.logs import configure_logs
from tests.soak.asking import ask_on
from tests.soak.world import (
    TABLE,
    TROUBLE,
    Question,
    World,
    ask,
    matching,
    names_now,
    read_plainly,
    tell,
)

_QUESTIONS_A_SNAPSHOT = 8


class Reader:
    """Asks about pinned snapshots."""

    def __init__(self, world: World, random: Random) -> None:
        self._random = random
        self._index = TableIndex.open(world.open(), TABLE)

    def once(self) -> None:
        """Choose a snapshot and ask some questions about it.

        Raises:
            AssertionError: If an answer is wrong.
        """
        self._index.refresh()
        table = self._index.data_table
        snapshot = self._random.choice(table.snapshots()[-8:])
        schema = table.schemas()[snapshot.schema_id] if snapshot.schema_id is not None else table.schema()
        data, names = read_plainly(table, snapshot.snapshot_id), names_now(schema)
        for _ in range(_QUESTIONS_A_SNAPSHOT):
            question = ask(self._random, names, pc.max(data[names["id"]]).as_py() or 0)
            self._compare(question, data, snapshot.snapshot_id, names["id"], names["k"])

    def _compare(self, question: Question, data: pa.Table, snapshot_id: int, key: str, k: str) -> None:
        wanted = matching(question, data)
        where = f"{question.where!r} of snapshot {snapshot_id}"
        match self._random.choice(("count", "count", "scan", "aggregate")):
            case "count":
                counted = planner.count(self._index, question.where, snapshot_id, refresh=False)
                assert counted.rows == len(wanted), f"{counted.rows} rows and not {len(wanted)}: {where}"
                tell("query", row_groups=counted.row_groups, read=counted.row_groups_read, dropped=counted.plan.dropped)
            case "scan":
                found = planner.scan(self._index, question.where, [key], snapshot_id, refresh=False).read_all()
                equal = sorted(found[key].to_pylist()) == sorted(wanted[key].to_pylist())
                assert equal, f"{len(found)} rows, {len(wanted)} wanted, or others: {where}"
                tell("query")
            case "aggregate":
                texts = [f"sum({k}) AS a", f"min({key}) AS b", f"count({k}) AS c"]
                found = planner.aggregate(self._index, question.where, texts, (), snapshot_id, refresh=False)
                right = (pc.sum(wanted[k]).as_py(), pc.min(wanted[key]).as_py(), len(wanted) - wanted[k].null_count)
                assert tuple(found.to_pylist()[0].values()) == right, f"{found.to_pylist()} and not {right}: {where}"
                tell("query")


def main() -> None:
    """Ask until the process is ended."""
    configure_logs("text", verbose=False)
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    world, random = World.read(sys.argv[1]), Random(int(sys.argv[2]))
    ask_on(world, random, lambda: Reader(world, random), TROUBLE, "reader-trouble")


if __name__ == "__main__":
    main()
