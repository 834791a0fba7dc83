"""What the study of stores says."""

from __future__ import annotations

from collections.abc import Iterator

from ssb_bench.report.document import Cell, Line, Part, Table, failed, marked_if
from ssb_bench.results.stores import StoreRun, StoreStep

_HEADINGS = (
    *("distance ms", "work", "index", "rounds", "seconds", "seconds as rounds", "requests", "of kind", "at once"),
    *("MB read", "MB written", "answer"),
)
_TARGETS = {"one column: plan": 1.5, "two columns: plan": 2.0, "q1: plan": 1.5, "q2: plan": 2.0}
"""The most rounds of a plan whose directories are in memory, by the end of its name."""


def store_parts(run: StoreRun) -> Iterator[Part]:
    """Lay out what each piece of work asked of the store, at each distance."""
    yield Line(
        f"lineorder of scale factor {run.scale_factor:g} in a store: {run.data_files} data files with "
        f"{run.data_bytes / 1e6:.0f} MB, {run.segments} segments with {run.index_bytes / 1e6:.0f} MB. Rounds are the "
        "longest chain of requests, each of which began after the end of the one before. "
        "The answer: row groups kept by a plan, rows counted, read or indexed, segments after compaction."
    )
    for milliseconds in dict.fromkeys(step.milliseconds for step in run.steps):
        rows = [_row(step) for step in run.steps if step.milliseconds == milliseconds]
        yield Table(_HEADINGS, rows, f"a store {milliseconds:g} ms away", ("work", "index", "of kind"))
    yield from failed(run.failures)


def _row(step: StoreStep) -> list[Cell]:
    most = next((most for name, most in _TARGETS.items() if step.name.endswith(name)), None)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in step.by_kind.items())
    return [
        *(f"{step.milliseconds:g}", step.name, "yes" if step.side == "index" else "no"),
        marked_if(most is not None and step.rounds > most, f"{step.rounds:,}"),
        *(f"{step.seconds:.3f}", f"{step.seconds * 1000 / step.milliseconds:.1f}" if step.milliseconds else ""),
        *(f"{step.requests:,}", kinds, f"{step.most_at_once:,}"),
        *(f"{step.bytes_in / 1e6:.2f}", f"{step.bytes_out / 1e6:.2f}"),
        "" if step.answer is None else f"{step.answer:,}",
    ]
