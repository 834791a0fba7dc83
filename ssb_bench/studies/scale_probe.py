"""Planning one predicate over a simulated index.

The memory of this process, as the system tells it.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO

from planner.condition.tree.nodes import Leaf
from planner.prune.distributed import prune_row_groups
from planner.prune.gate import Limits
from planner.prune.verdicts import Pruned
from planner.view.index_view import IndexView
from puffin_index.keys.leaf import RangeTest, SetTest
from ssb_bench.studies.simulate import FEW, FILTERED, MATRIX, NEEDLE, SCATTERED, SORTED, VALUE_TYPE

_STATUS: Final = Path("/proc/self/status")


def peak_bytes() -> int:
    """Give the most memory that this process has had so far, or since Linux was told to begin anew."""
    if _STATUS.exists():
        # The counter of `getrusage` starts with the memory of the process that forked this one.
        return status_bytes("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def status_bytes(name: str) -> int:
    """Read a size of this process, such as `VmRSS`; on Linux only."""
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


SCENARIOS: Final[dict[str, Leaf]] = {
    "sorted, equality": Leaf(SORTED, SetTest((NEEDLE[SORTED],)), VALUE_TYPE),
    "sorted, range": Leaf(SORTED, RangeTest(NEEDLE[SORTED], NEEDLE[SORTED] + 4_000), VALUE_TYPE),
    "postings, equality": Leaf(SCATTERED, SetTest((NEEDLE[SCATTERED],)), VALUE_TYPE),
    "postings, range": Leaf(SCATTERED, RangeTest(NEEDLE[SCATTERED], NEEDLE[SCATTERED] + 1), VALUE_TYPE),
    "bloom, equality": Leaf(FILTERED, SetTest((NEEDLE[FILTERED],)), VALUE_TYPE),
    "merged bloom, equality": Leaf(MATRIX, SetTest((NEEDLE[MATRIX],)), VALUE_TYPE),
    "merged bitmaps, equality": Leaf(FEW, SetTest((NEEDLE[FEW],)), VALUE_TYPE),
}
_WARM_SECONDS: Final = 20.0
# What is measured is the whole planning, so no time bound cuts it short.
_LIMITS: Final = Limits(strict=True, seconds=600)


@dataclass(frozen=True, slots=True)
class Probe:
    """What planning one predicate took.

    Attributes:
        open_seconds: From the index table's rows to a numbered view.
        cold_seconds: The first plan: directories are read.
        warm_seconds: Each later plan.
        cold_requests: Index reads of the first plan.
        cold_bytes: Their bytes.
        warm_requests: Index reads of a later plan.
        warm_bytes: Their bytes.
        kept: Row groups that survive.
        needle_kept: Whether the row group with the needle is among them.
        peak_bytes: Peak of the process's memory, libraries included.
        stage_seconds: Time of each stage of a later plan.
    """

    open_seconds: float
    cold_seconds: float
    warm_seconds: tuple[float, ...]
    cold_requests: int
    cold_bytes: int
    warm_requests: int
    warm_bytes: int
    kept: int
    needle_kept: bool
    peak_bytes: int
    stage_seconds: dict[str, float]

    @property
    def warm_median_seconds(self) -> float:
        """Median of the later plans."""
        return statistics.median(self.warm_seconds)


def probe(entries: pa.Table, scenario: str, repeats: int) -> Probe:
    """Plan a scenario once cold, then this many times warm, fewer where it is slow."""
    started = time.perf_counter()
    view = IndexView("simulated", entries, PyArrowFileIO())
    numbers = np.arange(view.row_group_count)
    opened = time.perf_counter() - started
    leaf = SCENARIOS[scenario]
    cold, cold_seconds = _timed(view, leaf, numbers)
    fitting = max(1, min(repeats, int(_WARM_SECONDS / cold_seconds)))
    warm = [_timed(view, leaf, numbers) for _ in range(fitting)]
    needle = 250 if leaf.field_id == SORTED else 500
    last = warm[-1][0]
    return Probe(
        open_seconds=opened,
        cold_seconds=cold_seconds,
        warm_seconds=tuple(seconds for _, seconds in warm),
        cold_requests=sum(stage.reads for stage in cold.stages),
        cold_bytes=sum(stage.bytes_read for stage in cold.stages),
        warm_requests=sum(stage.reads for stage in last.stages),
        warm_bytes=sum(stage.bytes_read for stage in last.stages),
        kept=int(last.kept.sum()),
        needle_kept=bool(last.kept[needle]),
        peak_bytes=peak_bytes(),
        stage_seconds={stage.name: stage.seconds for stage in last.stages},
    )


def _timed(view: IndexView, leaf: Leaf, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[Pruned, float]:
    started = time.perf_counter()
    pruned = prune_row_groups(view, leaf, numbers, _LIMITS)
    return pruned, time.perf_counter() - started


def probe_file(path: Path, scenario: str, repeats: int) -> Probe:
    """Probe the index whose entries a file of Arrow has; called in a process that has done nothing else."""
    with pa.memory_map(str(path)) as source:
        entries = pa.ipc.open_file(source).read_all()
    return probe(entries, scenario, repeats)
