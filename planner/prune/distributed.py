"""Planning on Spark's executors: each task judges the row groups of a run of data files; the driver joins the verdicts.

Worth it for scans of very many row groups, like Iceberg's own distributed planning. Executors read the index table and
its directories themselves and keep them. Only row group numbers and what tasks find cross the network.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import StaticTable, Table

from planner.condition.tree.nodes import Everything, Predicate
from planner.prune.few_rows import few_rows
from planner.prune.gate import DEFAULT_LIMITS, Limits
from planner.prune.row_sets import RowSets
from planner.prune.search import prune
from planner.prune.verdicts import Pruned, Reason, Stage
from planner.view.cache import SharedPayloads
from planner.view.directories import IndexTrouble
from planner.view.index_view import IndexView
from puffin_index.data.column_source import FieldSource
from puffin_index.errors import PuffinIndexError
from puffin_index.index_table.entries import without_sources
from puffin_index.index_table.table import read_entries
from puffin_index.kinds.base import RowSet
from puffin_index.storage.arrays import Ints
from puffin_index.storage.caches import cleared_by

if TYPE_CHECKING:
    from pyspark import SparkContext

PlanningMode: TypeAlias = Literal["auto", "local", "distributed"]

LOCAL_ROW_GROUPS: Final = 200_000
"""Up to this number of row groups, the driver alone is about as fast."""

FEW_ROW_GROUPS: Final = 20_000
FEW_ROWS: Final = 50_000_000
"""With both or less, the driver is done before Spark has run a job, whatever the mode."""

_TASKS_A_CORE = 2


Found = TypeVar("Found")

Work: TypeAlias = Callable[[IndexView, int, Ints, Limits], Found]
"""What a task does with the view of its data files, the number of the first of them in the driver's view, row groups of
the task's view, and its share of the limits. The work has to be picklable, and so has what it finds."""


@dataclass(frozen=True, slots=True)
class _Files:
    """A version of the index table, sources of columns to leave out, and data files by their numbers in the view."""

    metadata: str
    io_properties: tuple[tuple[str, str], ...]
    version: str
    rejected: frozenset[FieldSource]
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class _Part:
    """The work of one task, and its limits; row groups count from the first one of the first file."""

    files: _Files
    row_groups: Ints
    work: Work[Any]
    limits: Limits


@dataclass(frozen=True, slots=True)
class Executors:
    """The executors of a Spark application, which plan over an index table as `mode` says: `auto` for many rows."""

    context: SparkContext
    index_table: Table
    mode: PlanningMode = "auto"

    def are_worth_it(self, row_groups: int, rows: int) -> bool:
        """Whether the executors are to judge row groups of this number and these rows in all."""
        if self.mode == "distributed":
            return row_groups > FEW_ROW_GROUPS or rows > FEW_ROWS
        return self.mode == "auto" and row_groups > LOCAL_ROW_GROUPS


def run_on_executors(
    executors: Executors, view: IndexView, row_groups: Ints, limits: Limits, work: Work[Found]
) -> list[tuple[Ints, Found | Pruned]]:
    """Let the executors of a Spark application do something with row groups of the view (int64), in any order.

    Tasks share the byte budget evenly; the tasks of a core share the time. Yields the places of each task's row groups
    and what the task has found; the verdict `INDEX_UNREADABLE` where a task cannot read the index table.
    """
    # Executors import this module, too, and have no use for the engine.
    from puffin_index.jobs.engine import use_python_of_driver

    context = executors.context
    use_python_of_driver(context)
    count = context.defaultParallelism * _TASKS_A_CORE
    places, parts = _parts(count, executors.index_table, view, work, row_groups, limits)
    described = context.getLocalProperty("spark.job.description")
    context.setJobDescription(f"puffin-index: plan {len(row_groups)} row groups")
    try:
        results = context.parallelize(parts, len(parts)).map(_run_part).collect()
    finally:
        context.setJobDescription(described)  # type: ignore[arg-type] # None takes it away
    return list(zip(places, results, strict=True))


def join_pruned(
    parts: Sequence[tuple[Ints, Pruned]], row_groups: Ints, limits: Limits, *, in_turn: bool = False
) -> Pruned:
    """Join the verdicts of parts, given their places among all row groups; raise on index trouble in strict mode.

    Parts were judged side by side, so that the slowest one says the time, or `in_turn`.
    """
    reasons, matches = np.zeros(len(row_groups), np.uint8), np.zeros(len(row_groups), np.int64)
    given: dict[int, RowSet] = {}
    for place, result in parts:
        reasons[place], matches[place] = result.reasons, result.matches
        given |= {int(row_groups[place[at]]): rows for at, rows in result.row_sets.given.items()}
    troubles = tuple(trouble for _, result in parts for trouble in result.troubles)
    if limits.strict and troubles:
        raise PuffinIndexError(str(troubles[0]))
    used = frozenset(one for _, result in parts for one in result.used)
    warnings = tuple(dict.fromkeys(text for _, result in parts for text in result.warnings))
    stages = _stages([result.stages for _, result in parts], operator.add if in_turn else max)
    return Pruned(reasons, matches, stages, troubles, RowSets(given), used, warnings)


def _parts(
    count: int, index_table: Table, view: IndexView, work: Work[Any], row_groups: Ints, limits: Limits
) -> tuple[list[Ints], list[_Part]]:
    """Cut the data files into runs of about as many row groups; say where each run's stand in `row_groups`."""
    bounds = np.linspace(0, view.row_group_count, count + 1)
    first_files = np.unique(np.searchsorted(view.first_row_groups, bounds[:-1]))
    first_files = first_files[first_files < len(view.paths)]
    end_files = np.append(first_files[1:], len(view.paths))
    part_of = np.searchsorted(first_files, view.file_of[row_groups], "right") - 1
    own = replace(
        limits,
        strict=False,
        byte_budget=limits.byte_budget // max(1, len(first_files)),
        # The tasks of a core run one after the other.
        seconds=limits.seconds / _TASKS_A_CORE,
    )
    properties = tuple(sorted(index_table.io.properties.items()))
    places: list[Ints] = []
    parts: list[_Part] = []
    for part, (first, end) in enumerate(zip(first_files.tolist(), end_files.tolist(), strict=True)):
        place = np.flatnonzero(part_of == part)
        if len(place):
            numbers = row_groups[place] - int(view.first_row_groups[first])
            files = _Files(index_table.metadata_location, properties, view.version, view.rejected, first, end)
            parts.append(_Part(files, numbers, work, own))
            places.append(place)
    return places, parts


def _run_part(part: _Part) -> Any:
    try:
        view = _view_of(part.files)
    except (PuffinIndexError, OSError) as error:
        # An `expire` may have deleted what the driver has read.
        count = len(part.row_groups)
        trouble = IndexTrouble.of(part.files.metadata, error)
        return Pruned(np.full(count, Reason.INDEX_UNREADABLE, np.uint8), np.full(count, -1, np.int64), (), (trouble,))
    return part.work(view, part.files.first, part.row_groups, part.limits)


def _prune(predicate: Predicate, view: IndexView, first: int, row_groups: Ints, limits: Limits) -> Pruned:
    del first
    pruned = prune(view, predicate, row_groups, limits)
    # Row sets may be large, so only those travel that lie in few pages, by their places.
    kept = row_groups[pruned.kept] if limits.pages else row_groups[:0]
    few = few_rows(pruned.row_sets, kept, view.row_counts[kept]).rows
    given = {at: few[own] for at, own in enumerate(row_groups.tolist()) if own in few}
    return replace(pruned, row_sets=RowSets(given))


@lru_cache(maxsize=2)
def _entries(metadata: str, io_properties: tuple[tuple[str, str], ...]) -> tuple[StaticTable, pa.Table]:
    table = StaticTable.from_metadata(metadata, dict(io_properties))
    return table, read_entries(table)


@lru_cache(maxsize=64)
def _view_of(files: _Files) -> IndexView:
    """The view of some data files. A Python worker of Spark's lives on, and the same data files come again."""
    table, entries = _entries(files.metadata, files.io_properties)
    entries = without_sources(entries, files.rejected)
    names = pc.binary_join_element_wise(entries["data_file"], entries["partition_constants"], " ")
    chosen = pc.is_in(names, pc.unique(names)[files.first : files.end])
    return IndexView(files.version, entries.filter(chosen), table.io)


cleared_by(_entries.cache_clear)
cleared_by(_view_of.cache_clear)


def _stages(of_parts: Iterable[Sequence[Stage]], joined: Callable[[float, float], float]) -> tuple[Stage, ...]:
    """The sum of the parts' funnels, with the seconds joined."""
    by_name: dict[str, Stage] = {}
    for own in chain.from_iterable(of_parts):
        total = by_name.get(own.name, Stage(own.name, 0, 0, 0, 0, 0.0))
        by_name[own.name] = Stage(
            own.name,
            total.entered + own.entered,
            total.dropped + own.dropped,
            total.reads + own.reads,
            total.bytes_read + own.bytes_read,
            joined(total.seconds, own.seconds),
        )
    return tuple(by_name.values())


def prune_row_groups(
    view: IndexView,
    predicate: Predicate,
    row_groups: Ints,
    limits: Limits = DEFAULT_LIMITS,
    executors: Executors | None = None,
    shared: SharedPayloads | None = None,
) -> Pruned:
    """Judge row groups of a view (int64), in any order, here or on the executors of a Spark application.

    What is opened here of the columns of `shared` is kept there. Without a predicate all are kept, and nothing is read.
    """
    if isinstance(predicate, Everything):
        count = len(row_groups)
        reason = Reason.NO_PREDICATE
        matches = view.row_counts[row_groups] if predicate.exact else np.full(count, -1, np.int64)
        return Pruned(np.full(count, reason, np.uint8), matches, (), ())
    if executors is not None and executors.are_worth_it(len(row_groups), int(view.row_counts[row_groups].sum())):
        found = run_on_executors(executors, view, row_groups, limits, partial(_prune, predicate))
        return join_pruned(found, row_groups, limits)
    return prune(view, predicate, row_groups, limits, shared)
