"""A workload: WHERE conditions on one table, how often they were asked, and where (also from the query log)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.io import FileIO

from planner.condition.as_sql import without_literals
from planner.query_log import read_log
from puffin_index.errors import PuffinIndexError

_MOST_ALIKE = 4
"""At most this many queries stand for all that differ in their literals alone."""

_MOST = 100
"""At most this many queries are measured, the most frequent ones."""


@dataclass(frozen=True, slots=True)
class Query:
    """The scan of a table by a query: its condition, the columns it reads, and bytes without any index, where known.

    An index that holds the columns of `groups` and `held` can answer its aggregates; without any, it wants rows.
    """

    where: str | None
    columns: frozenset[str] | None = None
    bytes_read: int | None = None
    times: int = 1
    groups: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Workload:
    """The distinct scans of a table, most frequent first; and how often an index was of other use, as for a join.

    Such use is by `column.kind`, or by `column` where the kind is not known.
    """

    queries: tuple[Query, ...]
    skipped: tuple[str, ...] = ()
    of_other_tables: int = 0
    used: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        queries: Iterable[Query],
        skipped: Sequence[str] = (),
        of_other_tables: int = 0,
        used: Mapping[str, int] | None = None,
    ) -> Workload:
        """Count equal scans. Where the bytes of equal scans differ, their mean stands for all of them."""
        times: Counter[Query] = Counter()
        bytes_read: Counter[Query] = Counter()
        for query in queries:
            bare = replace(query, bytes_read=None if query.bytes_read is None else 0, times=1)
            times[bare] += query.times
            bytes_read[bare] += (query.bytes_read or 0) * query.times
        distinct = (
            replace(bare, times=count, bytes_read=None if bare.bytes_read is None else bytes_read[bare] // count)
            for bare, count in times.most_common()
        )
        return cls(tuple(distinct), tuple(dict.fromkeys(skipped)), of_other_tables, used or {})

    @property
    def scans(self) -> int:
        """How many scans there were, equal ones counted each."""
        return sum(query.times for query in self.queries)


def is_named(parts: Sequence[str], table: Sequence[str]) -> bool:
    """Return whether the parts of a name in a query can mean a table; catalogs and case do not count."""
    asked, own = [part.casefold() for part in parts], [part.casefold() for part in table]
    return asked[-len(own) :] == own[-len(asked) :]


def condensed(workload: Workload) -> Workload:
    """Let some queries stand for others that are like them."""
    alike: dict[tuple[str, frozenset[str], frozenset[str]], list[Query]] = {}
    for query in workload.queries:
        shape = "" if query.where is None else without_literals(query.where)
        alike.setdefault((shape, query.groups, query.held), []).append(query)
    chosen: list[Query] = []
    for group in alike.values():
        count = min(len(group), _MOST_ALIKE)
        kept = [group[len(group) * i // count] for i in range(count)]
        rest = sum(query.times for query in group) - sum(query.times for query in kept)
        # Those that are left out are shared out among those that stand for them.
        chosen += [replace(one, times=one.times + (rest + i) // count) for i, one in enumerate(kept)]
    chosen.sort(key=lambda query: -query.times)
    left_out = sum(query.times for query in chosen[_MOST:])
    remarks = [f"{left_out:,} scans of rare shapes were left out"] if left_out else []
    if len(chosen) < len(workload.queries):
        remarks.append(f"{min(len(chosen), _MOST)} queries stand for {len(workload.queries):,} that are like them")
    return replace(workload, queries=tuple(chosen[:_MOST]), skipped=(*workload.skipped, *remarks))


_TEXT_OR_PLACEHOLDER = re.compile(r"'(?:[^'\\]|\\.|'')*'|(\?)")

_BESIDE_WHERE: Final = frozenset({"join", "subquery", "join or subquery", "top-k", "limit", "aggregates"})
"""Sources of a record by which an index serves a query though its WHERE may not name the column."""


def read_query_log(io: FileIO, folder: str, table: Sequence[str]) -> Workload:
    """Read a query log. A scan that keys of a join narrowed once more counts once.

    Raises PuffinIndexError if the folder has no query.
    """
    records = read_log(io, folder).queries
    if not records:
        raise PuffinIndexError(f"{folder} has no query log, or an empty one: there is no query to learn from")
    queries: list[Query] = []
    others = hidden = 0
    used: Counter[str] = Counter()
    for record in records:
        if not is_named(record.table.split("."), table):
            others += 1
            continue
        if _BESIDE_WHERE & set(record.sources):
            used.update(".".join(pair) for pair in record.columns)
        if record.continues:
            continue
        if any(_TEXT_OR_PLACEHOLDER.findall(record.where)):
            hidden += 1
        else:
            queries.append(Query(record.where or None, bytes_read=record.bytes_without_index))
    skipped = []
    if hidden:
        setting = "spark.puffin-index.query-log-literals"
        skipped.append(f"{folder}: {hidden} queries without their literals (`{setting}` = true logs these)")
    return Workload.of(queries, skipped, others, used)
