"""What a study measured: steps of one form, whatever they are, as plain data and JSON."""

import datetime
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Number: TypeAlias = int | float
Facts: TypeAlias = dict[str, Number | str]


@dataclass(frozen=True, slots=True)
class Step:
    """Executions of one thing (`name`) on one side; steps of a name are held against its first side.

    Attributes:
        side: How it was done: `without` or `with` the index, or by which system.
        seconds: Of the measured executions; none if there is a `failure`.
        first_seconds: Of the first execution where that is apart.
        counts: What an execution counted, such as rows: medians. Names end in `bytes` or `seconds` with that unit.
        most: Targets: `seconds` (the median) or counts that are not to be exceeded.
        heading: The part of the study that it belongs to.
        case: Which one it is of several steps that make one row of a table.
    """

    name: str
    side: str
    seconds: tuple[float, ...] = ()
    first_seconds: float | None = None
    counts: dict[str, Number] = field(default_factory=dict)
    answer: str | None = None
    most: dict[str, Number] = field(default_factory=dict)
    heading: str = ""
    case: str = ""
    failure: str | None = None

    @property
    def title(self) -> str:
        """Which step it is, in a sentence."""
        return ", ".join(filter(None, (self.heading, self.name, self.case, self.side)))

    @property
    def median(self) -> float | None:
        """The median of its seconds, if it has any."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def missed(self) -> dict[str, Number]:
        """What is greater than its target."""
        found = self.counts if self.median is None else {**self.counts, "seconds": self.median}
        return {name: found[name] for name, most in self.most.items() if name in found and found[name] > most}


@dataclass(frozen=True, slots=True)
class Record:
    """One execution of a study: its begin (ISO 8601, UTC), facts by what they are of, and what went wrong besides."""

    study: str
    title: str
    started_at: str
    scale_factor: float
    machine: Facts
    facts: dict[str, Facts]
    steps: tuple[Step, ...]
    troubles: tuple[str, ...] = ()
    format: Literal["ssb-bench/record/1"] = "ssb-bench/record/1"

    @property
    def failures(self) -> list[str]:
        """Everything that went wrong; a missed target is none."""
        return [*(f"{step.title}: {step.failure}" for step in self.steps if step.failure), *self.troubles]

    def rows(self) -> dict[tuple[str, str], dict[str, list[Step]]]:
        """Give the steps by heading and name, then by side; several of one side differ in their cases."""
        rows: dict[tuple[str, str], dict[str, list[Step]]] = {}
        for step in self.steps:
            rows.setdefault((step.heading, step.name), {}).setdefault(step.side, []).append(step)
        return rows

    def file_in(self, runs: Path) -> Path:
        """Name its file among those of all runs."""
        stamp = datetime.datetime.fromisoformat(self.started_at).strftime("%Y%m%dT%H%M%SZ")
        return runs / f"{self.study}-{stamp}.json"


def together(steps: Sequence[Step]) -> Step:
    """Make one step of several cases: all their seconds and the sums of their counts, or the failure of one of them."""
    if len(steps) == 1:
        return steps[0]
    names = dict.fromkeys(name for step in steps for name in step.counts)
    counts = {name: sum(step.counts.get(name, 0) for step in steps) for name in names}
    failure = next((step.failure for step in steps if step.failure), None)
    seconds = () if failure else tuple(value for step in steps for value in step.seconds)
    return Step(steps[0].name, steps[0].side, seconds, counts=counts, heading=steps[0].heading, failure=failure)


def times_as_fast(base: Step, step: Step) -> float | None:
    """Give the median of the first side by that of another one; None after a failure, and of the first side itself."""
    if base.side == step.side or base.median is None or step.median is None:
        return None
    return base.median / step.median
