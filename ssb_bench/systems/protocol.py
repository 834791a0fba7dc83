"""What a worker and the benchmark say to each other: one JSON object a line, over the worker's stdin and stdout.

This module runs in any environment, so it imports nothing but the standard library.

| request | reply |
| --- | --- |
| `{"open": {...}}` | `{"facts": {...}}`: version, build seconds, bytes |
| `{"query": {"kind": "count" or "rows", "where", "system"}}` | `{"seconds", "answer"}` |
| any of them, in trouble | `{"error": sentence}` |

The answer to `count` is a number. The answer to `rows` (all columns of the matching rows, in batches that are thrown
away) is the number of rows and the sum of lo_revenue.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

# What json.loads gives has no narrower type, and workers see foreign libraries without types.
Json: TypeAlias = Mapping[str, Any]


_EXPECTED = (ArithmeticError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What libraries raise; anything else ends the worker, and the end of its stderr is the reason."""


class Worker(ABC):
    """One system.

    Attributes:
        facts: The `version`, and `build_seconds`, `index_bytes`, `data_bytes` of a system with data of its own.
        errors: What the system's library raises besides Python's own exceptions.
    """

    facts: Mapping[str, object]
    errors: tuple[type[Exception], ...] = ()

    @abstractmethod
    def __init__(self, config: Json) -> None: ...

    @abstractmethod
    def count(self, query: Json) -> int:
        """Count the matching rows."""

    @abstractmethod
    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows; give how many there are and the sum of their lo_revenue."""


def serve(system: type[Worker]) -> None:
    """Answer requests to a system until stdin ends."""
    # Libraries print to stdout as well; that must not get between the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker: Worker | None = None
    caught: tuple[type[Exception], ...] = _EXPECTED
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "open" in request:
                worker = system(request["open"])
                caught = (*_EXPECTED, *worker.errors)
                reply: dict[str, object] = {"facts": worker.facts}
            elif worker is None:
                reply = {"error": "not opened"}
            else:
                reply = _answer(worker, request["query"])
        except caught as error:
            reply = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
        replies.write(json.dumps(reply) + "\n")


def _answer(worker: Worker, query: Json) -> dict[str, object]:
    started = time.perf_counter()
    answer: object = worker.count(query) if query["kind"] == "count" else worker.rows(query)
    return {"seconds": time.perf_counter() - started, "answer": answer}


def make_once(folder: Path, make: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
    """Make what a system needs in a folder, unless it is there; give what making it took."""
    record = folder / "made.json"
    if not record.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        record.write_text(json.dumps(make()), encoding="utf-8")
    made: Mapping[str, float] = json.loads(record.read_text(encoding="utf-8"))
    return made


def sum_batches(batches: Iterable[Any]) -> tuple[int, int]:
    """Give the rows of Arrow record batches and the sum of their lo_revenue."""
    import pyarrow.compute as pc

    rows = total = 0
    for batch in batches:
        rows += batch.num_rows
        total += pc.sum(batch.column("lo_revenue")).as_py() or 0
    return rows, total
