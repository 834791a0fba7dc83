"""A long-lived process that asks: python -m tests.soak.readers plain|spark|server WORLD.json SEED.

Without Spark, each answer with the index is compared with DuckDB's over PyIceberg's own scan of the same snapshot; with
Spark, with the answer of the same query, of the same snapshot, without the hook. Spark deletes and updates as well. A
server is an application with the plugin, which gets a new session for each few questions.
"""

import logging
import os
import sys
import time
from pathlib import Path
from random import Random

import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import planner
from puffin_index import TableIndex
from puffin_index.commands.logs import configure_logs
from ssb_bench.spark_runs.session import create_session
from tests.processes import descendants
from tests.soak.checker import Checker, CheckError, Question
from tests.soak.started import resident_bytes
from tests.soak.world import COLUMNS, EMPTY_CACHES_SECONDS, TABLE, TROUBLE, World, ask, empty_caches, tell, tell_trouble
from tests.spark.plugin.programs import printed_settings

_REST_SECONDS = 0.5
_MOST_THREADS = 60
_TABLE = f"lake.{TABLE}"
_SHAPES = (
    "SELECT id FROM {t} WHERE {where} ORDER BY id",
    "SELECT count(*), sum(k), min(id), max(k), count(DISTINCT n) FROM {t} WHERE {where}",
    "SELECT n, count(*), sum(k) FROM {t} WHERE {where} GROUP BY n ORDER BY n",
    "SELECT k, id FROM {t} WHERE {where} ORDER BY k NULLS LAST, id LIMIT 7",
    "SELECT id FROM {t} WHERE k IN (SELECT max(k) FROM {t} WHERE {where} GROUP BY n) ORDER BY id",
)


class Reader:
    """Asks about pinned snapshots."""

    trouble: tuple[type[Exception], ...] = (*TROUBLE, CheckError)
    """What may be raised while a store or catalog is in trouble."""

    def __init__(self, world: World, random: Random) -> None:
        self._random = random
        self._index = TableIndex.open(world.open(), TABLE)
        self._checker = Checker(world.properties)

    def ask(self) -> None:
        """Choose a snapshot and ask some questions about it."""
        self._index.refresh()
        table = self._index.data_table
        snapshot = self._random.choice(table.snapshots()[-8:])
        seed = self._random.randrange(2**32)
        for question in self._checker.questions(table.metadata_location, snapshot.snapshot_id, seed):
            self._compare(question, snapshot.snapshot_id)

    def _compare(self, question: Question, snapshot_id: int) -> None:
        where, wanted, key, k = question.where, question.rows, question.key, question.k
        asked = f"{where!r} of snapshot {snapshot_id}"
        match self._random.choice(("count", "count", "scan", "aggregate")):
            case "count":
                counted = planner.count(self._index, where, snapshot_id, refresh=False)
                assert counted.rows == len(wanted), f"{counted.rows} rows and not {len(wanted)}: {asked}"
                tell("query", row_groups=counted.row_groups, read=counted.row_groups_read, dropped=counted.plan.dropped)
            case "scan":
                found = planner.scan(self._index, where, [key], snapshot_id, refresh=False).read_all()
                equal = sorted(found[key].to_pylist()) == sorted(wanted[key].to_pylist())
                assert equal, f"{len(found)} rows, {len(wanted)} wanted, or others: {asked}"
                tell("query")
            case "aggregate":
                texts = [f"sum({k}) AS a", f"min({key}) AS b", f"count({k}) AS c"]
                found = planner.aggregate(self._index, where, texts, (), snapshot_id, refresh=False)
                right = (pc.sum(wanted[k]).as_py(), pc.min(wanted[key]).as_py(), len(wanted) - wanted[k].null_count)
                assert tuple(found.to_pylist()[0].values()) == right, f"{found.to_pylist()} and not {right}: {asked}"
                tell("query")


class SparkReader:
    """Asks with and without the hook, and writes now and then."""

    trouble: tuple[type[Exception], ...] = (PySparkException, Py4JError)

    def __init__(self, world: World, random: Random) -> None:
        self._spark = self._application(world)
        self._random = random
        modes = ", ".join(f"'write.{what}.mode'='merge-on-read'" for what in ("delete", "update", "merge"))
        self._spark.sql(f"ALTER TABLE {_TABLE} SET TBLPROPERTIES ({modes})")

    def _application(self, world: World) -> SparkSession:
        spark = create_session(world.database.parent, memory="1g", name="soak")
        planner.enable(spark)
        return spark

    def ask(self) -> None:
        """Ask some questions about one snapshot."""
        self._spark.sql(f"REFRESH TABLE {_TABLE}")
        snapshots = [row[0] for row in self._spark.sql(f"SELECT snapshot_id FROM {_TABLE}.snapshots").collect()]
        pinned = f"{_TABLE} VERSION AS OF {self._random.choice(snapshots[-8:])}"
        columns = self._spark.sql(f"SELECT * FROM {pinned}").columns
        names = dict(zip(COLUMNS, COLUMNS, strict=True)) | ({} if "word" in columns else {"word": "phrase"})
        for _ in range(4):
            shape = self._random.choice(_SHAPES)
            self._compare(shape.format(t=pinned, where=ask(self._random, names, 20_000)))
        if self._random.random() < 0.3:
            self._write()

    def _compare(self, query: str) -> None:
        answers = []
        for enabled in ("true", "false"):
            self._spark.conf.set("spark.puffin-index.enabled", enabled)
            answers.append(self._spark.sql(query).collect())
        assert answers[0] == answers[1], f"{str(answers[0])[:200]} and not {str(answers[1])[:200]}: {query}"
        self._spark.conf.set("spark.puffin-index.enabled", "true")
        reports = planner.reports(self._spark)
        tell("spark query", dropped=reports[-1].dropped if reports else 0)

    def _write(self) -> None:
        """Delete or update rows, which Spark notes in delete files."""
        chosen = f"k BETWEEN {(low := self._random.randrange(4_000))} AND {low + 2}"
        what = self._random.choice((f"DELETE FROM {_TABLE}", f"UPDATE {_TABLE} SET k = k + 1"))
        self._spark.sql(f"{what} WHERE {chosen}")
        tell("spark delete" if what.startswith("DELETE") else "spark update")


class ServerReader(SparkReader):
    """Asks in ever new sessions of an application with the plugin, and looks after the sidecar."""

    def _application(self, world: World) -> SparkSession:
        os.environ["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).with_name('sidecar')}"
        return create_session(world.database.parent, memory="1g", name="soak server", conf=printed_settings())

    def ask(self) -> None:
        """Ask some questions in a new session; threads of the sidecar do not add up."""
        self._spark = self._spark.newSession()
        super().ask()
        sidecars = [one.pid for one in descendants(os.getpid()) if "planner.spark.sidecar" in one.command]
        assert len(sidecars) == 1, f"{len(sidecars)} sidecars"
        tell("memory", resident_bytes=resident_bytes(sidecars[0]))
        threads = len(os.listdir(f"/proc/{sidecars[0]}/task"))
        assert threads <= _MOST_THREADS, f"the sidecar has {threads} threads"


_READERS: dict[str, type[Reader | SparkReader]] = {"plain": Reader, "spark": SparkReader, "server": ServerReader}


def main() -> None:
    """Ask until the process is ended: tell of wrong answers and of trouble, and empty the caches now and then."""
    configure_logs("text", verbose=False)
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    logging.getLogger("pyspark").setLevel(logging.CRITICAL)
    kind, path, seed = sys.argv[1:]
    world, random = World.read(path), Random(int(seed))
    made = _READERS[kind]
    reader: Reader | SparkReader | None = None
    emptied = time.monotonic()
    while True:
        if kind != "server" and time.monotonic() - emptied >= EMPTY_CACHES_SECONDS:
            empty_caches()
            emptied = time.monotonic()
        try:
            reader = reader or made(world, random)
            reader.ask()
        except AssertionError as error:
            tell("wrong", what=str(error))
            with (Path(world.folder) / "wrong.txt").open("a", encoding="utf-8") as file:
                file.write(f"{error}\n")
        except made.trouble as error:
            tell_trouble(f"{kind} reader-trouble", error)
            time.sleep(_REST_SECONDS)
        time.sleep(random.expovariate(4.0))


if __name__ == "__main__":
    main()
