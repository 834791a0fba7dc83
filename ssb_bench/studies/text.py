"""Words of log lines and elements of arrays, in a table as Iceberg writes it by default, partitioned by hour.

The lines are in the style of web servers, applications, job schedulers, databases and sshd, in several languages; names
and numbers are drawn by Zipf's law. One line in a million has a word that no other line has.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from operator import mul
from typing import Annotated, Final

from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.data.layout import NAMESPACE
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen, Task, Work
from ssb_bench.spark_runs.load import note_indexed, write_table
from ssb_bench.spark_runs.measure import both_sides
from ssb_bench.spark_runs.session import CATALOG, open_catalog
from ssb_bench.studies.pages import ask

TITLE = "Words of lines, elements of arrays"
_LINES_AN_HOUR: Final = 2_000_000


def _of_hash(number: int, most: int) -> str:
    """A number below `most` that a row's hash gives."""
    return f"pmod(xxhash64(id, {number}), {most})"


def _zipf(number: int, most: int) -> str:
    """A number up to `most`, each as often as Zipf's law says."""
    return f"int(exp({_of_hash(number, 1_000_000)} / 1e6 * ln({most})))"


_ADDRESS: Final = f"concat_ws('.', 10, {_of_hash(1, 9)}, {_zipf(2, 250)}, {_of_hash(3, 250)})"
_STYLES: Final = (
    f"{_ADDRESS}, ' - - \"GET /items/', {_zipf(4, 50_000)}, '?page=', {_zipf(5, 90)}, ' HTTP/1.1\" ', "
    f"element_at(array(200, 200, 200, 304, 404, 500), int({_of_hash(6, 6)}) + 1), ' ', {_of_hash(7, 60_000)}, "
    f"' \"Mozilla/5.0 (X11; Linux x86_64) Firefox/', {_zipf(8, 140)}, '.0\"'",
    f"'INFO [worker-', {_of_hash(9, 64)}, '] request ', hex(xxhash64(id, 10)), ' of user u', {_zipf(11, 200_000)}, "
    f"' took ', {_zipf(12, 9_000)}, ' ms'",
    f"'job nightly-', {_zipf(13, 900)}, ' started on node-', {_of_hash(14, 400)}, ', attempt ', {_zipf(15, 5)}",
    f"'LOG:  duration: ', {_zipf(16, 90_000)} / 1000, ' ms  statement: SELECT * FROM orders WHERE customer_id = ', "
    f"{_zipf(17, 900_000)}",
    f"'Failed password for invalid user ', element_at(array('root', 'test', 'git'), int({_of_hash(18, 3)}) + 1), "
    f"' from ', {_ADDRESS}, ' port ', {_of_hash(19, 65_000)}, ' ssh2'",
    f"'WARN java.lang.IllegalStateException: full\\n\\tat com.example.Queue.offer(L', {_of_hash(20, 400)}, ')'",
    f"'Auftrag ', {_zipf(21, 90_000)}, ' für Lager Köln ist abgeschlossen'",
    f"'注文 ', {_zipf(22, 90_000)}, ' を処理しました'",
)
_MESSAGE: Final = " ".join(f"WHEN {number} THEN concat({style})" for number, style in enumerate(_STYLES))
_RARE: Final = f"CASE WHEN {_of_hash(23, 1_000_000)} = 7 THEN 'ERROR quorum of shard lost' ELSE "


def measure(bench: Bench, *, lines: Annotated[int, "Lines of the table."] = 20_000_000, repeats: Repeats = 5) -> None:
    """Search log lines for words, and arrays for elements; exit 1 if an answer is wrong."""
    with bench.session() as spark:
        table = f"{NAMESPACE}.lines_{lines}"
        index = _make_table(spark, bench, table, lines)
        note_indexed(bench, index)
        with both_sides(spark) as sides:
            asked = _questions(spark, table)
            tasks = [Task(name, _works(sides, index, table, where), limit=limit) for name, where, limit in asked]
            bench.compare(tasks, repeats=repeats)


def _make_table(spark: SparkSession, bench: Bench, table: str, lines: int) -> TableIndex:
    catalog = open_catalog(bench.layout.warehouse)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    if not catalog.table_exists(table):
        rows = spark.range(0, lines, 1, -(-lines // _LINES_AN_HOUR)).selectExpr(
            "id",
            f"timestamp_seconds(1767225600 + id * 3600 div {_LINES_AN_HOUR}) AS at",
            f"{_RARE}CASE int({_of_hash(24, len(_STYLES))}) {_MESSAGE} END END AS message",
            f"array(concat('l', {_zipf(25, 100_000)}), concat('l', {_of_hash(26, 100_000)})) AS labels",
        )
        bench.note("table", write_seconds=write_table(rows, f"{CATALOG}.{table}", {}, "at"))
    definition = IndexDefinition.of(
        bitmap=["message", "labels"], options={"message.content": "words", "labels.content": "elements"}
    )
    index = TableIndex.create(catalog, table, definition)
    report = index.build(spark)
    if report.rows:
        bench.note("index", build_seconds=report.seconds)
    return index


def _questions(spark: SparkSession, table: str) -> Iterator[tuple[str, str, partial[float]]]:
    """Give names, conditions, and what each may take of the time without the index."""
    request = "regexp_extract(max(message), 'request ([0-9A-F]+)', 1)"
    first = f"SELECT {request} FROM {CATALOG}.{table} WHERE message LIKE 'INFO%' AND id < 9999"
    [(known,)] = spark.sql(first).collect()
    yield "a word of one line in a million", "message LIKE '%quorum%'", partial(mul, 1 / 15)
    yield "a request's id", f"message LIKE '%request {known} of%'", partial(mul, 1 / 15)
    yield "a part of two words, in any case", "message ILIKE '%shard LOS%'", partial(mul, 1 / 15)
    yield "a word of every eighth line", "message LIKE '%Firefox%'", partial(mul, 1 / 0.98)
    yield "an element of one row in 100,000", "array_contains(labels, 'l77777')", partial(mul, 1 / 10)


def _works(sides: Mapping[str, SparkSession], index: TableIndex, table: str, where: str) -> dict[str, Work]:
    sql = f"SELECT * FROM {CATALOG}.{table} WHERE {where}"
    works: dict[str, Work] = {side: partial(ask, session, sql) for side, session in sides.items()}
    # Only Spark knows the case of letters beyond ASCII.
    return works if "ILIKE" in where else works | {"planner.scan": lambda: _scan(index, where)}


def _scan(index: TableIndex, where: str) -> Seen:
    return Seen(None, {"rows": planner.scan(index, where, ["id", "message"], refresh=False).read_all().num_rows})
