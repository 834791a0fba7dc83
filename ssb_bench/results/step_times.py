"""What each step of the whole benchmark took, as one JSON file."""

from __future__ import annotations

from dataclasses import dataclass

from ssb_bench.data.layout import Layout
from ssb_bench.data.records import read_if_there


@dataclass(frozen=True, slots=True)
class StepTime:
    """What a step took when it last ran.

    Attributes:
        seconds: Wall time, the start of its process included.
        exit_code: Exit code of its process.
    """

    seconds: float
    exit_code: int


def read_times(layout: Layout) -> dict[str, StepTime]:
    """Read what each step took when it last ran; nothing if there is no such file.

    Raises:
        BenchError: If the file is something else.
    """
    return read_if_there(layout.result("steps"), dict[str, StepTime]) or {}
