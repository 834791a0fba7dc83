"""What the study of keys in bursts says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ssb_bench.report.document import Cell as Text
from ssb_bench.report.document import Figure, Line, Part, Table, failed, marked_if, marked_ratio
from ssb_bench.report.figures import draw_clustered
from ssb_bench.results.statistics import summarize
from ssb_bench.results.studies import MOST_KEPT, Cell, ClusteredRun

_SUMS = ("row groups", "matching", "kept", "by min and max", "kept / matching", "missed cells")


def clustered_parts(run: ClusteredRun) -> Iterator[Part]:
    """Lay out what is kept by query and by burst, the cells that miss the target, and times of some scans."""
    tables = "; ".join(
        f"{table.row_groups} row groups of {table.size} (at most {table.row_group_rows:,} rows), "
        f"{table.data_bytes / 1e6:.0f} MB and {table.index_bytes / 1e6:.0f} MB of index"
        for table in run.tables
    )
    yield Line(f"{run.rows:,} rows whose keys come in bursts: {tables}. Sums over {run.trials} queries a cell.")
    yield Figure("clustered", "Heat maps of the share of row groups kept", partial(draw_clustered, run))
    selective = [cell for cell in run.cells if cell.is_selective]
    headings = ("row groups of", "query", *_SUMS, "index / data bytes", "planning ms")
    rows = [[*key, *_sums(cells), *_costs(cells)] for key, cells in _grouped(selective, lambda c: (c.size, c.query))]
    yield Table(headings, rows, "cells in which fewer than half of the row groups match, by query", ("query",))
    needles = [cell for cell in run.cells if (cell.query, cell.order) == ("needle", "random")]
    rows = [[*key, *_sums(cells)] for key, cells in _grouped(needles, lambda c: (c.size, str(c.burst)))]
    yield Table(("row groups of", "burst", *_SUMS), rows, "one key, bursts in random order, by burst")
    missed = [cell for cell in selective if cell.is_missed]
    yield Line(
        marked_if(
            bool(missed),
            f"{len(missed)} of {len(selective)} cells in which fewer than half of the row groups match keep more than "
            f"{MOST_KEPT:g} times the matching ones.",
        )
    )
    if missed:
        rows = [[cell.name, *_sums([cell])[:-1], *_costs([cell])] for cell in missed]
        yield Table(("cell", *_SUMS[:-1], "index / data bytes", "planning ms"), rows)
    idle = [cell for cell in run.cells if cell.kept == cell.without and cell.index_bytes]
    if idle:
        most = max(idle, key=_share_read)
        yield Line(
            f"Where nothing is dropped, the index reads are at most {_share_read(most):.2%} of the data: {most.name}."
        )
    rows = [
        [
            *(scan.size, scan.query, f"{scan.kept} of {scan.row_groups}"),
            *(_milliseconds(scan.without_seconds), _milliseconds(scan.with_seconds), marked_ratio(scan.speed_up, 1)),
        ]
        for scan in run.scans
    ]
    if rows:
        of_scans = ("row groups of", "query", "kept", "PyIceberg ms (range)", "planner.scan ms (range)", "ratio")
        yield Table(
            of_scans, rows, "rows of strings in bursts of 12, random order, without Spark, in pairs", ("query",)
        )
    yield from failed(run.failures)


def _grouped(
    cells: Sequence[Cell], key: Callable[[Cell], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], list[Cell]]]:
    """Group cells by a key, in the order in which keys first come."""
    of_key: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        of_key.setdefault(key(cell), []).append(cell)
    yield from of_key.items()


def _sums(cells: Sequence[Cell]) -> list[Text]:
    total, matching, kept, without = (
        sum(getattr(cell, name) for cell in cells) for name in ("row_groups", "matching", "kept", "without")
    )
    missed = sum(cell.is_missed for cell in cells)
    share = f"{kept / matching:.2f}" if matching else "" if not kept else "\N{INFINITY}"
    return [
        *(f"{total:,}", f"{matching:,}", f"{kept:,}", f"{without:,}"),
        marked_if(kept > MOST_KEPT * matching, share),
        marked_if(missed > 0, f"{missed} of {len(cells)}"),
    ]


def _costs(cells: Sequence[Cell]) -> list[Text]:
    read, data = (sum(getattr(cell, name) for cell in cells) for name in ("index_bytes", "data_bytes"))
    return [f"{read / max(data, 1):.2%}", f"{max(cell.planning_seconds for cell in cells) * 1000:.0f}"]


def _share_read(cell: Cell) -> float:
    return cell.index_bytes / max(cell.data_bytes, 1)


def _milliseconds(seconds: Sequence[float]) -> str:
    times = summarize(seconds)
    middle, least, most = times.median_seconds, times.least_seconds, times.greatest_seconds
    return f"{middle * 1000:.0f} ({least * 1000:.0f} to {most * 1000:.0f})"
