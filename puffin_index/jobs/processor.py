"""Processor-specific settings for the processes that build."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

_EXECUTOR_VARIABLE = "spark.executorEnv."
_DISABLED = "NPY_DISABLE_CPU_FEATURES"
_CPU_INFO = Path("/proc/cpuinfo")
_NAMED_SO_FROM = "2.4.0"


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
