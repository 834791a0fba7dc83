"""A long-lived Spark application that asks and deletes: python -m tests.soak.spark_reader WORLD.json SEED.

Each answer with the hook is compared with the answer of the same query, of the same snapshot, without the hook.
"""

import logging
import sys
from random import Random

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import planner
from puffin_index.commands.logs import configure_logs
from ssb_bench.spark_runs.session import create_session
from tests.soak.asking import ask_on
from tests.soak.world import COLUMNS, TABLE, World, ask, tell

_TABLE = f"lake.{TABLE}"
_TROUBLE = (PySparkException, Py4JError)
_SHAPES = (
    "SELECT id FROM {t} WHERE {where} ORDER BY id",
    "SELECT count(*), sum(k), min(id), max(k), count(DISTINCT n) FROM {t} WHERE {where}",
    "SELECT n, count(*), sum(k) FROM {t} WHERE {where} GROUP BY n ORDER BY n",
    "SELECT k, id FROM {t} WHERE {where} ORDER BY k NULLS LAST, id LIMIT 7",
    "SELECT id FROM {t} WHERE k IN (SELECT max(k) FROM {t} WHERE {where} GROUP BY n) ORDER BY id",
)


class SparkReader:
    """Asks with and without the hook, and writes now and then."""

    def __init__(self, spark: SparkSession, random: Random) -> None:
        self._spark = spark
        self._random = random
        planner.enable(spark)

    def once(self) -> None:
        """Ask some questions about one snapshot.

        Raises:
            AssertionError: If an answer is wrong.
        """
        self._spark.sql(f"REFRESH TABLE {_TABLE}")
        snapshots = [row[0] for row in self._spark.sql(f"SELECT snapshot_id FROM {_TABLE}.snapshots").collect()]
        pinned = f"{_TABLE} VERSION AS OF {self._random.choice(snapshots[-8:])}"
        columns = self._spark.sql(f"SELECT * FROM {pinned}").columns
        names = dict(zip(COLUMNS, COLUMNS, strict=True)) | ({} if "word" in columns else {"word": "phrase"})
        for _ in range(4):
            shape = self._random.choice(_SHAPES)
            self._compare(shape.format(t=pinned, where=ask(self._random, names, 20_000).where))
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


def main() -> None:
    """Ask until the process is ended."""
    configure_logs("text", verbose=False)
    logging.getLogger("pyspark").setLevel(logging.CRITICAL)
    world, random = World.read(sys.argv[1]), Random(int(sys.argv[2]))
    spark = create_session(world.database.parent, memory="1g", name="soak")

    def reader() -> SparkReader:
        modes = ", ".join(f"'write.{what}.mode'='merge-on-read'" for what in ("delete", "update", "merge"))
        spark.sql(f"ALTER TABLE {_TABLE} SET TBLPROPERTIES ({modes})")
        return SparkReader(spark, random)

    ask_on(world, random, reader, _TROUBLE, "spark-trouble")


if __name__ == "__main__":
    main()
