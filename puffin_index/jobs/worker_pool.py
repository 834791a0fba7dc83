"""Worker processes that end when this process ends, however it ends, and their settings for this processor."""

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from loky import ProcessPoolExecutor

_LOOK_SECONDS = 0.5
_EXECUTOR_VARIABLE = "spark.executorEnv."
_DISABLED = "NPY_DISABLE_CPU_FEATURES"
_CPU_INFO = Path("/proc/cpuinfo")
_NAMED_SO_FROM = "2.4.0"


def worker_pool(workers: int, environment: Mapping[str, str]) -> ProcessPoolExecutor:
    """Make a pool of processes, which get some environment variables more than this process has.

    loky's processes do not import the caller's main module, so a script works without a main guard.
    """
    return ProcessPoolExecutor(
        max_workers=workers, env=dict(environment), initializer=end_with, initargs=(os.getpid(),)
    )


def end_with(parent: int) -> None:
    """End this process soon after its parent has ended, as no other sign tells that there is no more work.

    The caller passes the parent's ID, as the parent may have ended already. The kernel's signal for the death of a
    parent comes when the *thread* that started this process ends. A pipe stays open as long as any other process has
    inherited its other end.
    """
    threading.Thread(target=_end_after, args=(parent,), name="puffin-index-parent", daemon=True).start()


def _end_after(parent: int) -> None:
    # Except on Windows, a process whose parent has ended gets another parent at once.
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def environment_of_workers(environment: Mapping[str, str] = os.environ, cpu_info: Path = _CPU_INFO) -> dict[str, str]:
    """Return environment variables that make numpy sort fast in a new process.

    AMD's Zen 4 has AVX-512, but its compressed stores are so slow that numpy's sort takes five times as long with
    AVX-512 as with AVX2 (51 instead of 10.5 ms for a million numbers). numpy reads the variable on import, and knows
    the feature by this name since 2.4. A value that is already set stays.
    """
    if _DISABLED in environment or np.lib.NumpyVersion(np.__version__) < _NAMED_SO_FROM:
        return {}
    try:
        first = cpu_info.read_text(encoding="ascii", errors="replace").split("\n\n", 1)[0]
    except OSError:
        return {}
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    is_zen_4 = (told.get("vendor_id"), told.get("cpu family")) == ("AuthenticAMD", "25")
    return {_DISABLED: "X86_V4"} if is_zen_4 and "avx512f" in told.get("flags", "").split() else {}


def settings_of_executors() -> dict[str, str]:
    """Return the Spark settings that give executors these variables; executors mostly run on machines like this one."""
    return {_EXECUTOR_VARIABLE + name: value for name, value in environment_of_workers().items()}
