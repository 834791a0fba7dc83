"""Words of log lines and elements of arrays, in a table as Iceberg writes it by default, partitioned by hour.

The lines are those of `ssb_bench/data/sql/lines.sql`: names and numbers are drawn by Zipf's law, and one line in a
million has a word that no other line has.
"""

import re
from dataclasses import replace
from functools import partial
from importlib.resources import files
from string import Template
from typing import Annotated, Final

import planner
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.data.layout import NAMESPACE
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen
from ssb_bench.spark_runs.load import index_table, write_table
from ssb_bench.spark_runs.measure import both_sides, tasks_of
from ssb_bench.spark_runs.session import CATALOG, open_catalog

TITLE = "Words of lines, elements of arrays"
_LINES_AN_HOUR: Final = 2_000_000
_DEFINITION: Final = IndexDefinition.of(
    bitmap=["message", "labels"], options={"message.content": "words", "labels.content": "elements"}
)


def measure(bench: Bench, *, lines: Annotated[int, "Lines of the table."] = 20_000_000, repeats: Repeats = 5) -> None:
    """Search log lines for words, and arrays for elements; exit 1 if an answer is wrong."""
    with bench.session() as spark:
        table, catalog = f"{NAMESPACE}.lines_{lines}", open_catalog(bench.layout.warehouse)
        catalog.create_namespace_if_not_exists(NAMESPACE)
        if not catalog.table_exists(table):
            bench.note("table", write_seconds=write_table(spark.sql(_sql(lines)), f"{CATALOG}.{table}", {}, "at"))
        index = index_table(bench, spark, table, _DEFINITION)
        with both_sides(spark) as sides:
            for session in sides.values():
                session.table(f"{CATALOG}.{table}").createOrReplaceTempView("lines")
            tasks = []
            for query, task in tasks_of("text", sides):
                # Only Spark knows the case of letters beyond ASCII.
                others = {} if "ILIKE" in query.sql else {"planner.scan": partial(_scan, index, query.where)}
                tasks.append(replace(task, works={**task.works, **others}))
            bench.compare(tasks, repeats=repeats)


def _sql(lines: int) -> str:
    """Give the query that makes the rows: numbers drawn by Spark's hash, as Spark has no macros."""
    text = Template(files("ssb_bench.data").joinpath("sql", "lines.sql").read_text(encoding="utf-8"))
    sql = text.substitute(lines=lines, an_hour=_LINES_AN_HOUR, files=-(-lines // _LINES_AN_HOUR))
    sql = re.sub(r"zipf\((\d+), (\d+)\)", r"int(exp(below(\1, 1000000) / 1e6 * ln(\2)))", sql)
    return re.sub(r"below\((\d+), (\d+)\)", r"pmod(xxhash64(id, \1), \2)", sql)


def _scan(index: TableIndex, where: str) -> Seen:
    return Seen(None, {"rows": planner.scan(index, where, ["id", "message"], refresh=False).read_all().num_rows})
