"""A workload: WHERE conditions on one table, how often they were asked, and where they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Query:
    """The scan of a table by a query.

    Attributes:
        where: The condition on columns of the table; None if all rows are asked for.
        columns: The names of the columns that are read; None if that is unknown or all are.
        bytes_read: The bytes that the scan reads without any index; None if that is unknown.
        times: How often it was asked.
    """

    where: str | None
    columns: frozenset[str] | None = None
    bytes_read: int | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class Workload:
    """The scans of a table.

    Attributes:
        queries: The distinct scans; those asked most often come first.
        skipped: What could not be read, with the reasons, as sentences.
        of_other_tables: Scans of other tables.
    """

    queries: tuple[Query, ...]
    skipped: tuple[str, ...] = ()
    of_other_tables: int = 0

    @classmethod
    def of(cls, queries: Iterable[Query], skipped: Sequence[str] = (), of_other_tables: int = 0) -> Workload:
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
        return cls(tuple(distinct), tuple(dict.fromkeys(skipped)), of_other_tables)

    @property
    def scans(self) -> int:
        """How many scans there were, equal ones counted each."""
        return sum(query.times for query in self.queries)


def is_named(parts: Sequence[str], table: Sequence[str]) -> bool:
    """Return whether a table's name in a query can mean a table; catalogs and letters of either case do not count.

    Args:
        parts: The name in the query: `table`, `namespace.table` or `catalog.namespace.table`.
        table: Namespace and name of the table.
    """
    asked, own = [part.casefold() for part in parts], [part.casefold() for part in table]
    return asked[-len(own) :] == own[-len(asked) :]
