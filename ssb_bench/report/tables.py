"""A record as texts and tables, for a terminal; `page` makes HTML of them. Their styles say what stands out.

`bad`: a failure or a missed target; `good` and `slow`: a change of the time. A row of a table is what one side made of
a name; the cases of both, if there are several, are added up, and those that miss a target are listed.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from rich.table import Table
from rich.text import Text

from ssb_bench.results.record import Facts, Number, Record, Step, mean_of, times_as_fast, together

Part: TypeAlias = Text | Table

BAD, GOOD, SLOW, PLAIN = "bold red", "bold green", "bold yellow", "dim"
NOISE_BAND: Final = 0.02
"""A ratio within this share of 1 says nothing."""
_MOST_LISTED: Final = 30


def parts_of(record: Record) -> Iterator[Part]:
    """Lay out a record: facts, a table for each heading, what the sides come to, missed targets, failures."""
    yield Text(f"{record.title}: scale factor {record.scale_factor:g}, {record.started_at}", style="bold")
    for what, facts in record.facts.items():
        yield Text(f"{what}: {_listed(facts)}", style=PLAIN)
    for heading in dict.fromkeys(step.heading for step in record.steps):
        rows = [sides for (own, _), sides in record.rows().items() if own == heading]
        yield _table(heading, rows)
        yield from _means(rows)
    missed = [step for step in record.steps if step.missed]
    for step in missed[:_MOST_LISTED]:
        over = step.missed.items()
        texts = [
            f"{unit_of(name)} {shown(name, found)} (at most {shown(name, step.most[name])})" for name, found in over
        ]
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


def _listed(facts: Facts) -> str:
    return ", ".join(
        f"{name} {fact}" if isinstance(fact, str) else f"{unit_of(name)} {shown(name, fact)}"
        for name, fact in facts.items()
    )


def _table(heading: str, rows: list[dict[str, list[Step]]]) -> Table:
    table = Table(
        title=heading or None, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    steps = [step for sides in rows for own in sides.values() for step in own]
    counts = dict.fromkeys(name for step in steps for name in step.counts)
    has_answers, has_firsts = (
        any(getattr(step, name) is not None for step in steps) for name in ("answer", "first_seconds")
    )
    for text in ("", "side"):
        table.add_column(text, no_wrap=not text)
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
            table.add_row(
                *("" if base is not step else step.name, side, *[_answer(step)] * has_answers),
                *(_count(name, step, missed) for name in counts),
                *[_seconds(step.first_seconds)] * has_firsts,
                *_times(step, missed),
                _ratio(times_as_fast(base, step)),
            )
    return table


def _answer(step: Step) -> str:
    answer = step.answer or ""
    return f"{int(answer):,}" if answer.isdecimal() else answer


def _count(name: str, step: Step, missed: set[str]) -> Text:
    return Text(shown(name, step.counts[name]) if name in step.counts else "", style=BAD if name in missed else "")


def _seconds(value: float | None) -> str:
    return "" if value is None else shown("seconds", value)


def _times(step: Step, missed: set[str]) -> tuple[Text, str]:
    if step.failure is not None:
        return Text("null", style=BAD), ""
    least, most = (_seconds(end(step.seconds, default=None)) for end in (min, max))
    return Text(_seconds(step.median), style=BAD if "seconds" in missed else ""), f"{least}..{most}" if least else ""


def _ratio(ratio: float | None) -> Text:
    if ratio is None:
        return Text()
    style = "" if abs(ratio - 1) <= NOISE_BAND else GOOD if ratio > 1 else SLOW
    return Text(f"{ratio:.2f}", style=style)


def _means(rows: list[dict[str, list[Step]]]) -> Iterator[Text]:
    """Say for each side how many times as fast as the first one it is."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for sides in rows:
        base, *others = map(together, sides.values())
        for step in others:
            if (ratio := times_as_fast(base, step)) is not None:
                ratios.setdefault((step.side, base.side), []).append(ratio)
    for (side, base_side), found in ratios.items():
        yield Text(f"{side}: {mean_of(found)} times as fast as {base_side}, geometric mean", style=PLAIN)
