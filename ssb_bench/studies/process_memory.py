"""The memory of this process, as the system tells it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Final

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
