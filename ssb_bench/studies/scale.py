"""How planning grows with the number of row groups: simulated indexes of 10^3 to 10^6 of them, one process a probe."""

import logging
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
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
from puffin_index.jobs.worker_pool import worker_pool
from puffin_index.keys.leaf import RangeTest, SetTest
from puffin_index.storage.arrays import Ints
from ssb_bench.results.studies import Probe, Scale, ScalePoint
from ssb_bench.spark_runs.session import describe_host
from ssb_bench.studies.simulate import (
    FEW,
    FILTERED,
    MATRIX,
    NEEDLE,
    NEEDLE_ROW_GROUP,
    SCATTERED,
    SORTED,
    VALUE_TYPE,
    segment_multiple,
    simulate,
)

DEFAULT_SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
SCENARIOS: Final[dict[str, Leaf]] = {
    "sorted, equality": Leaf(SORTED, SetTest((NEEDLE[SORTED],)), VALUE_TYPE),
    "sorted, range": Leaf(SORTED, RangeTest(NEEDLE[SORTED], NEEDLE[SORTED] + 4_000), VALUE_TYPE),
    "postings, equality": Leaf(SCATTERED, SetTest((NEEDLE[SCATTERED],)), VALUE_TYPE),
    "postings, range": Leaf(SCATTERED, RangeTest(NEEDLE[SCATTERED], NEEDLE[SCATTERED] + 1), VALUE_TYPE),
    "bloom, equality": Leaf(FILTERED, SetTest((NEEDLE[FILTERED],)), VALUE_TYPE),
    "merged bloom, equality": Leaf(MATRIX, SetTest((NEEDLE[MATRIX],)), VALUE_TYPE),
    "merged bitmaps, equality": Leaf(FEW, SetTest((NEEDLE[FEW],)), VALUE_TYPE),
}
_PROBE_TIMEOUT_SECONDS: Final = 600
_WARM_SECONDS: Final = 20.0
# What is measured is the whole planning, so no time bound cuts it short.
_LIMITS: Final = Limits(strict=True, seconds=600)
_STATUS: Final = Path("/proc/self/status")
_log = logging.getLogger(__name__)


def measure_scale(
    scratch: Path,
    sizes: Sequence[int] = DEFAULT_SIZES,
    *,
    repeats: int = 5,
) -> Scale:
    """Measure every scenario over simulated indexes of these sizes, made and deleted in a scratch folder."""
    scratch.mkdir(parents=True, exist_ok=True)
    points: list[ScalePoint] = []
    for size in sorted({segment_multiple(size) for size in sizes}):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            _log.info("%d row groups: writing segments", size)
            simulated = simulate(Path(folder) / "segments", size)
            entries = Path(folder) / "entries.arrow"
            with pa.OSFile(str(entries), "wb") as sink, pa.ipc.new_file(sink, simulated.entries.schema) as writer:
                writer.write_table(simulated.entries)
            for scenario in SCENARIOS:
                _log.info("%d row groups: %s", size, scenario)
                probed = _run_probe(entries, scenario, repeats)
                points.append(ScalePoint(scenario, size, simulated.index_bytes, *probed))
    return Scale(describe_host(), tuple(points))


def _run_probe(entries: Path, scenario: str, repeats: int) -> tuple[Probe | None, str | None]:
    """Probe in a process of its own, so that nothing else is in its memory; give the probe or what went wrong."""
    with worker_pool(1, {}) as pool:
        future = pool.submit(_probe_file, entries, scenario, repeats)
        try:
            error = future.exception(_PROBE_TIMEOUT_SECONDS)
        except TimeoutError:
            pool.shutdown(kill_workers=True)
            return None, f"took longer than {_PROBE_TIMEOUT_SECONDS} s"
    return (future.result(), None) if error is None else (None, f"{type(error).__name__}: {error}")


def _probe_file(path: Path, scenario: str, repeats: int) -> Probe:
    with pa.memory_map(str(path)) as source:
        entries = pa.ipc.open_file(source).read_all()
    return probe(entries, scenario, repeats)


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
        needle_kept=bool(last.kept[NEEDLE_ROW_GROUP[leaf.field_id]]),
        peak_bytes=_peak_bytes(),
        stage_seconds={stage.name: stage.seconds for stage in last.stages},
    )


def _timed(view: IndexView, leaf: Leaf, numbers: Ints) -> tuple[Pruned, float]:
    started = time.perf_counter()
    pruned = prune_row_groups(view, leaf, numbers, _LIMITS)
    return pruned, time.perf_counter() - started


def _peak_bytes() -> int:
    """Give the most memory that this process has had so far."""
    if _STATUS.exists():
        # The counter of `getrusage` starts with the memory of the process that forked this one.
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
