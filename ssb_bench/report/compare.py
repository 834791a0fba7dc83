"""The guard: two runs of the same benchmark side by side; what got slower, reads more or fails is a regression.

The ratio of a query is the median time with the index in the new run by the one in the old run. With `relative`, each
time is a share of the time without the index in the same run, so that a slower machine or hour cancels out. A ratio
within the noise band says nothing, and neither does a ratio of times whose ranges overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ssb_bench.data.layout import BenchError
from ssb_bench.report.document import Cell, Line, Marked, Part, Table
from ssb_bench.results.run import QueryResult, Run
from ssb_bench.results.statistics import Summary, geometric_mean, summarize, verdict

DEFAULT_NOISE_BAND: Final = 0.05
Change = Literal["faster", "unchanged", "slower", "new", "missing", "broken", "more row groups"]
_REGRESSIONS: Final = frozenset({"slower", "missing", "broken", "more row groups"})
_MUST_AGREE: Final = ("processor", "cores", "memory_bytes", "spark_driver_memory")


@dataclass(frozen=True, slots=True)
class Compared:
    """One query in two runs, its times with the index if any, and the ratio of medians, or of shares if asked for."""

    name: str
    old: Summary | None
    new: Summary | None
    ratio: float | None
    old_kept: int | None
    new_kept: int | None
    change: Change

    @property
    def is_regression(self) -> bool:
        """Whether the query fails the guard."""
        return self.change in _REGRESSIONS


def compare_runs(
    old: Run, new: Run, *, noise_band: float = DEFAULT_NOISE_BAND, relative: bool = False
) -> tuple[Compared, ...]:
    """Compare two runs query by query, in the order of the new run, then what only the old one has.

    Raises BenchError if the runs are of other data or, unless `relative`, of another machine.
    """
    _check_comparable(old, new, relative)
    of_old = {query.name: query for query in old.queries}
    compared = [_compare(of_old.pop(query.name, None), query, noise_band, relative) for query in new.queries]
    missing = [_compare(query, None, noise_band, relative) for query in of_old.values()]
    return (*compared, *missing)


def comparison_parts(compared: Sequence[Compared], *, noise_band: float = DEFAULT_NOISE_BAND) -> Iterator[Part]:
    """Lay out a comparison, with regressions marked."""
    rows: list[list[Cell]] = []
    for query in compared:
        rows.append(
            [
                query.name,
                *("" if times is None else f"{times.median_seconds:.3f}" for times in (query.old, query.new)),
                "" if query.ratio is None else f"{query.ratio:.3f}",
                *("" if kept is None else f"{kept:,}" for kept in (query.old_kept, query.new_kept)),
                _verdict(query),
            ]
        )
    yield Table(("query", "old s", "new s", "ratio", "old kept", "new kept", "verdict"), rows, texts=("verdict",))
    ratios = [query.ratio for query in compared if query.ratio is not None]
    if ratios:
        yield Line(f"geometric mean of the ratios: {geometric_mean(ratios):.3f}")
    yield Line(f"noise band: {noise_band:.0%}; a ratio over 1 is slower")


def _verdict(query: Compared) -> Cell:
    if query.is_regression:
        return Marked(query.change, "bad")
    return Marked(query.change, "good") if query.change == "faster" else query.change


def _check_comparable(old: Run, new: Run, relative: bool) -> None:
    data = {(run.scale_factor, run.table.rows, run.table.row_groups) for run in (old, new)}
    if len(data) > 1:
        raise BenchError(f"the runs are of different data (scale factor, rows, row groups): {sorted(data)}")
    other = [key for key in _MUST_AGREE if old.machine.get(key) != new.machine.get(key)]
    if other and not relative:
        raise BenchError(
            f"the runs are of different machines ({', '.join(other)}): compare them with --relative, "
            "by the time without the index of each run"
        )


def _compare(old: QueryResult | None, new: QueryResult | None, noise_band: float, relative: bool) -> Compared:
    name = new.name if new is not None else old.name if old is not None else ""
    before, after = _times(old, relative), _times(new, relative)
    old_kept, new_kept = _kept(old), _kept(new)
    ratio = None
    change: Change
    if before is not None and after is not None:
        ratio = after.median_seconds / before.median_seconds
        overlap = before.least_seconds <= after.greatest_seconds and after.least_seconds <= before.greatest_seconds
        change = "unchanged" if overlap else verdict(1 / ratio, noise_band)
        if old_kept is not None and new_kept is not None and new_kept > old_kept:
            change = "more row groups"
    else:
        change = "new"
    if new is None or new.failures:
        change = "missing" if new is None else "broken"
    return Compared(name, before, after, ratio, old_kept, new_kept, change)


def _times(query: QueryResult | None, relative: bool) -> Summary | None:
    """The times with the index; with `relative`, as shares of the median time without the index."""
    if query is None or query.with_index is None or query.without_index is None:
        return None
    unit = summarize(query.without_index.seconds).median_seconds if relative else 1.0
    return summarize([seconds / unit for seconds in query.with_index.seconds])


def _kept(query: QueryResult | None) -> int | None:
    return None if query is None or query.plan is None else query.plan.kept
