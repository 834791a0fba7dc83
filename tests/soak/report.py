"""What a soak has seen: the state on disk, which later parts add to, and the text for people."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

WARM_UP = 1 / 3
"""The share of the time in which memory may grow: caches fill up."""

LEAST_SECONDS = 1800.0
"""Memory is judged only if it was watched for so long: until then, allocators gather pages that they reuse later."""

_MIB = 1 << 20
_MOST_GROWTH_BYTES = 32 * _MIB
_MOST_GROWTH_SHARE = 0.15


@dataclass
class State:
    """What all parts have seen together, by world.

    MiB of memory are told after the warm-up, at the end and after each twelfth of the time, and growth in an hour.
    """

    seconds: float = 0.0
    parts: int = 0
    events: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    memory: list[dict[str, object]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def read(cls, path: Path) -> State:
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else cls()

    def write(self, path: Path) -> None:
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(self.to_json(), indent=1), encoding="utf-8")
        beside.replace(path)

    def to_json(self) -> dict[str, object]:
        with self._lock:
            return {
                "seconds": round(self.seconds, 1),
                "parts": self.parts,
                "events": {world: dict(sorted(counts.items())) for world, counts in self.events.items()},
                "failures": list(self.failures),
                "memory": list(self.memory),
            }

    def count(self, world: str, event: str, number: int = 1) -> None:
        with self._lock:
            own = self.events.setdefault(world, {})
            own[event] = own.get(event, 0) + number

    def fail(self, what: str) -> None:
        with self._lock:
            self.failures.append(what)

    def total(self, event: str) -> int:
        with self._lock:
            return sum(counts.get(event, 0) for counts in self.events.values())

    def judge_memory(self, name: str, samples: Sequence[tuple[float, int]]) -> None:
        """Note how the memory of a long-lived process has grown with the seconds, and whether that was too much."""
        late = [one for one in samples if one[0] >= samples[-1][0] * WARM_UP]
        if len(late) < 3:
            return
        times, sizes = np.array(late, np.float64).T
        slope = float(np.polyfit(times, sizes, 1)[0])
        growth, limit = (
            slope * (times[-1] - times[0]),
            max(_MOST_GROWTH_BYTES, _MOST_GROWTH_SHARE * float(sizes.mean())),
        )
        is_judged = samples[-1][0] >= LEAST_SECONDS
        with self._lock:
            self.memory.append({
                "part": self.parts,
                "process": name,
                "seconds": round(float(times[-1])),
                "after_warm_up_mib": round(sizes[: max(1, len(sizes) // 10)].mean() / _MIB),
                "at_the_end_mib": round(sizes[-max(1, len(sizes) // 10) :].mean() / _MIB),
                "most_mib": round(sizes.max() / _MIB),
                "each_twelfth_mib": _evenly(samples),
                "mib_an_hour": round(slope * 3600 / _MIB, 1),
                "judged": is_judged,
            })  # fmt: skip
        if is_judged and growth > limit:
            self.fail(f"memory of {name} has grown by {growth / _MIB:.0f} MiB in {times[-1] - times[0]:.0f} s")

    def text(self) -> str:
        lines = [f"soak: {self.seconds / 60:.0f} minutes under load, {self.parts} parts", ""]
        for world, counts in self.events.items():
            lines += [f"{world}:", *(f"  {name:28} {number:>8,}" for name, number in sorted(counts.items())), ""]
        lines += ["memory of long-lived processes:"]
        for one in self.memory:
            lines.append(
                f"  part {one['part']}, {one['process']}: {one['after_warm_up_mib']} MiB after the warm-up, "
                f"{one['at_the_end_mib']} at the end, {one['mib_an_hour']} MiB an hour"
                + ("" if one["judged"] else " (too short to judge)")
                + f"; {one.get('each_twelfth_mib', '')}"
            )
        lines += ["", f"failures: {len(self.failures)}", *(f"  {what}" for what in self.failures)]
        return "\n".join(lines)


def _evenly(samples: Sequence[tuple[float, int]]) -> list[int]:
    """Return MiB after each twelfth of the time, which shows whether memory rises all the time or levels off."""
    times, sizes = np.array(samples, np.float64).T
    return [round(size / _MIB) for size in np.interp(np.linspace(0, times[-1], 13)[1:], times, sizes)]
