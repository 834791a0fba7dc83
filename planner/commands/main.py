"""The command line `puffin-index`: the index commands, `build`, and what concerns queries."""

from puffin_index.commands.main import main

__all__ = ["main"]

main.add_lazy("planner.commands.build", {"build": "Index the data files of TABLE that have no index yet."})
main.add_lazy(
    "planner.commands.advise",
    {
        "benefits": "Show what the indexes of TABLE have saved its queries in Spark, and which ones no query used.",
        "what-if": "Measure what a query with this WHERE text would read of TABLE if it had other indexes.",
        "advise": "Propose indexes of TABLE for the queries that were asked, and name the ones that nobody needs.",
    },
)
main.add_lazy(
    "planner.commands.queries",
    {
        "explain": "Show which row groups of TABLE a query with this WHERE text reads, and why.",
        "count": "Count the rows of TABLE that satisfy this WHERE text, from the index as far as it is exact.",
        "aggregate": 'Print AGGREGATES of TABLE, such as "count(*), sum(c) AS s", '
        "from the index as far as it is exact.",
    },
)
main.add_lazy(
    "planner.commands.spark_conf",
    {"spark-conf": "Print the settings that let any Spark application use indexes, whatever its driver is written in."},
)
