"""What each step of the whole benchmark took, as one JSON file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ssb_bench.data.layout import Layout


@dataclass(frozen=True, slots=True)
class StepTime:
    """What a step took when it last ran.

    Attributes:
        seconds: Its wall time, the start of its process included.
        exit_code: How it ended; 0 is well.
    """

    seconds: float
    exit_code: int


def times_path(layout: Layout) -> Path:
    """Name the file with the time of each step."""
    return layout.root / "all" / "steps.json"


def read_times(path: Path) -> dict[str, StepTime]:
    """Read what each step took when it last ran; nothing if there is no such file."""
    if not path.exists():
        return {}
    content: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))
    return {name: StepTime(time["seconds"], int(time["exit_code"])) for name, time in content.items()}
