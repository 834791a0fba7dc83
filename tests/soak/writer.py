"""A process that changes a table on and on: python -m tests.soak.writer WORLD.json SEED."""

import sys
import time
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import EqualTo, LessThan
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from tests.soak.world import TABLE, TROUBLE, World, names_now, rows, tell, tell_trouble

_MOST_FILES = 50
_KEPT_ROWS = 15_000
_KEPT_SNAPSHOTS = 12


class Writer:
    """Changes a table by one commit after the other; whatever fails is left to the next change."""

    def __init__(self, table: Table, random: Random) -> None:
        self._table = table
        self._random = random

    def run(self) -> None:
        actions: dict[str, tuple[int, Callable[[], None]]] = {
            "append": (50, self._append),
            "delete": (10, self._delete),
            "update": (8, self._update),
            "overwrite": (3, self._overwrite),
            "retire": (8, self._retire),
            "schema": (3, self._change_schema),
            "expire-snapshots": (15, self._expire),
        }
        names, weights = list(actions), [weight for weight, _ in actions.values()]
        while True:
            (name,) = self._random.choices(names, weights)
            try:
                self._table.refresh()
                actions[name][1]()
                tell(name)
            except TROUBLE as error:
                tell_trouble("writer-trouble", error)
            time.sleep(self._random.expovariate(2.0))

    def _fitting(self, data: pa.Table) -> pa.Table:
        schema, called = self._table.schema(), {new: old for old, new in names_now(self._table.schema()).items()}
        arrow = schema.as_arrow()
        columns = [
            data[called[field.name]].cast(field.type) if field.name in called else pa.nulls(len(data), field.type)
            for field in arrow
        ]
        return pa.table(columns, schema=arrow)

    def _next_id(self) -> int:
        metrics = self._table.inspect.files()["readable_metrics"].to_pylist()
        return 1 + max((one["id"]["upper_bound"] or 0 for one in metrics), default=0)

    def _append(self) -> None:
        count = self._random.choice((1, 150, 400, 900))
        self._table.append(self._fitting(rows(self._random.randrange(2**32), self._next_id(), count)))

    def _delete(self) -> None:
        self._table.delete(EqualTo(term="k", value=self._random.randrange(4_000)))

    def _update(self) -> None:
        chosen = EqualTo(term="k", value=self._random.randrange(4_000))
        found = self._table.scan(row_filter=chosen).to_arrow()
        place = found.schema.get_field_index("k")
        changed = found.set_column(place, found.schema.field(place), pc.add(found["k"], 1))
        self._table.overwrite(changed, overwrite_filter=chosen)

    def _overwrite(self) -> None:
        """Replace everything by what is there, in one file."""
        self._table.overwrite(self._table.scan().to_arrow().sort_by("id"))

    def _retire(self) -> None:
        self._table.delete(LessThan(term="id", value=self._next_id() - _KEPT_ROWS))
        if len(self._table.refresh().inspect.files()) > _MOST_FILES:
            self._overwrite()

    def _change_schema(self) -> None:
        schema = self._table.schema()
        extra = [field.name for field in schema.fields if field.name.startswith("extra")]
        with self._table.update_schema() as update:
            if self._random.random() < 0.5:
                word = names_now(schema)["word"]
                update.rename_column(word, "phrase" if word == "word" else "word")
            elif len(extra) > 2:
                update.delete_column(extra[0])
            elif str(schema.find_field("n").field_type) == "int":
                update.update_column("n", LongType())
            else:
                update.add_column(f"extra{self._random.randrange(10**6)}", StringType())

    def _expire(self) -> None:
        named = {ref.snapshot_id for ref in self._table.metadata.refs.values()}
        old = [one.snapshot_id for one in self._table.snapshots()[:-_KEPT_SNAPSHOTS] if one.snapshot_id not in named]
        if old:
            self._table.maintenance.expire_snapshots().by_ids(old).commit()


def main() -> None:
    world, random = World.read(sys.argv[1]), Random(int(sys.argv[2]))
    while True:
        try:
            table = world.open().load_table(TABLE)
            break
        except TROUBLE as error:
            tell_trouble("writer-trouble", error)
            time.sleep(1)
    Writer(table, random).run()


if __name__ == "__main__":
    main()
