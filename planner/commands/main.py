"""The command line `puffin-index`: the index commands, `build`, and what concerns queries."""

from puffin_index.commands import logs
from puffin_index.commands.main import main

__all__ = ["main"]

logs.OWN.append("planner")
# Commands print what these loggers say as warnings of a plan.
logs.QUIET.extend(("planner.prune.state", "planner.view.column_values"))
main.add_lazy(
    "planner.commands.advise",
    "planner.commands.build",
    "planner.commands.doctor",
    "planner.commands.queries",
    "planner.commands.spark_conf",
)
