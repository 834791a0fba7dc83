"""The command line `puffin-index`: the index commands, `build`, and what concerns queries."""

from puffin_index.commands.main import LazyCommand, main

__all__ = ["main"]

_PACKAGE = "planner.commands"

main.add_lazy(
    {
        "build": LazyCommand(
            f"{_PACKAGE}.build", "build_command", "Index the data files of TABLE that have no index yet."
        ),
        "benefits": LazyCommand(
            f"{_PACKAGE}.advise",
            "benefits_command",
            "Show what the indexes of TABLE have saved its queries in Spark, and which ones no query used.",
        ),
        "what-if": LazyCommand(
            f"{_PACKAGE}.advise",
            "what_if_command",
            "Measure what a query with this WHERE text would read of TABLE if it had other indexes.",
        ),
        "advise": LazyCommand(
            f"{_PACKAGE}.advise",
            "advise_command",
            "Propose indexes of TABLE for the queries that were asked, and name the ones that nobody needs.",
        ),
        "explain": LazyCommand(
            f"{_PACKAGE}.queries",
            "explain_command",
            "Show which row groups of TABLE a query with this WHERE text reads, and why.",
        ),
        "count": LazyCommand(
            f"{_PACKAGE}.queries",
            "count_command",
            "Count the rows of TABLE that satisfy this WHERE text, from the index as far as it is exact.",
        ),
        "aggregate": LazyCommand(
            f"{_PACKAGE}.queries",
            "aggregate_command",
            'Print AGGREGATES of TABLE, such as "count(*), sum(c) AS s", from the index as far as it is exact.',
        ),
    }
)
