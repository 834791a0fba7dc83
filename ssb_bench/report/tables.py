"""A record as texts and tables, for a terminal; `page` makes HTML of them. Their styles say what stands out.

`bad`: a failure or a missed target; `good` and `slow`: a change of the time. A row of a table is what one side made of
a name; the cases of both, if there are several, are added up, and those that miss a target are listed.
"""

from collections.abc import Collection, Iterator
from statistics import geometric_mean
from typing import Final, TypeAlias

from rich.table import Table
from rich.text import Text

from ssb_bench.results.record import Number, Record, Step, times_as_fast, together

Part: TypeAlias = Text | Table

BAD, GOOD, SLOW, PLAIN = "bold red", "bold green", "bold yellow", "dim"
NOISE_BAND: Final = 0.02
"""A ratio within this share of 1 says nothing."""
_MOST_LISTED: Final = 30


def parts_of(record: Record) -> Iterator[Part]:
    """Lay out a record: facts, a table for each heading, what the sides come to, missed targets, failures."""
    yield Text(f"{record.title}: scale factor {record.scale_factor:g}, {record.started_at}", style="bold")
    for what, facts in record.facts.items():
        yield Text(f"{what}: {', '.join(_said(*fact) for fact in facts.items())}", style=PLAIN)
    for heading in dict.fromkeys(step.heading for step in record.steps):
        rows = [sides for (own, _), sides in record.rows().items() if own == heading]
        yield _table(heading, rows)
        yield from _means(rows)
    missed = [step for step in record.steps if step.missed]
    for step in missed[:_MOST_LISTED]:
        texts = [f"{_said(*over)} (at most {shown(over[0], step.most[over[0]])})" for over in step.missed.items()]
        yield Text(f"MISSED  {step.title}: {', '.join(texts)}", style=BAD)
    if len(missed) > _MOST_LISTED:
        yield Text(f"MISSED  {len(missed) - _MOST_LISTED} more, which are in the JSON", style=BAD)
    yield from (Text(f"FAILED  {failure}", style=BAD) for failure in record.failures)


def shown(name: str, value: Number) -> str:
    """Give a number as text, in the unit that `unit_of` says."""
    if name.endswith("bytes"):
        return f"{value / 1e6:,.2f}"
    return f"{value:.3g}" if name.endswith("seconds") else f"{value:,.10g}"


def unit_of(name: str) -> str:
    """Name a count and its unit."""
    return name.replace("bytes", "MB").replace("seconds", "s")


def _said(name: str, fact: Number | str) -> str:
    return f"{name} {fact}" if isinstance(fact, str) else f"{unit_of(name)} {shown(name, fact)}"


def _table(heading: str, rows: list[dict[str, list[Step]]]) -> Table:
    table = Table(
        title=heading or None, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    steps = [step for sides in rows for own in sides.values() for step in own]
    counts = dict.fromkeys(name for step in steps for name in step.counts)
    has_answers = any(step.answer is not None for step in steps)
    has_firsts = any(step.first_seconds is not None for step in steps)
    table.add_column("", no_wrap=True)
    table.add_column("side")
    for text in (*["answer"] * has_answers, *map(unit_of, counts), *["first s"] * has_firsts):
        table.add_column(text.replace(" ", "\n"), justify="right")
    for text in ("median\ns", "min..max\ns", "ratio"):
        table.add_column(text, justify="right", no_wrap=True)
    for sides in rows:
        base: Step | None = None
        for side, own in sides.items():
            step = together(own)
            base = base or step
            missed = {name for one in own for name in one.missed}
            answer = step.answer or ""
            table.add_row(
                *("" if base is not step else step.name, side),
                *[f"{int(answer):,}" if answer.isdecimal() else answer] * has_answers,
                *(_number(name, step.counts.get(name), missed) for name in counts),
                *[_number("seconds", step.first_seconds)] * has_firsts,
                Text("null", style=BAD) if step.failure else _number("seconds", step.median, missed),
                "..".join(shown("seconds", end(step.seconds)) for end in (min, max) if step.seconds),
                _ratio(times_as_fast(base, step)),
            )
    return table


def _number(name: str, value: Number | None, missed: Collection[str] = ()) -> Text:
    return Text("" if value is None else shown(name, value), style=BAD if name in missed else "")


def _ratio(ratio: float | None) -> Text:
    if ratio is None:
        return Text()
    return Text(f"{ratio:.2f}", "" if abs(ratio - 1) <= NOISE_BAND else GOOD if ratio > 1 else SLOW)


def _means(rows: list[dict[str, list[Step]]]) -> Iterator[Text]:
    """Say for each side how many times as fast as the first one it is."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for sides in rows:
        base, *others = map(together, sides.values())
        for step in others:
            if (ratio := times_as_fast(base, step)) is not None:
                ratios.setdefault((step.side, base.side), []).append(ratio)
    for (side, base_side), found in ratios.items():
        mean = f"{geometric_mean(found):.2f} (of {len(found)}, {min(found):.2f} to {max(found):.2f})"
        yield Text(f"{side}: {mean} times as fast as {base_side}, geometric mean", style=PLAIN)
