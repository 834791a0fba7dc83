"""Keep the Spark process's own messages out of the terminal, in a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def stderr_to(file: Path) -> Iterator[None]:
    """Send stderr into a file: that of this process, and that of the processes started inside the block.

    A process that was started inside writes to the file until it ends, so only Spark's start has to be inside.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)
