"""The errors of the benchmark: what a person can put right, said in one sentence."""

from __future__ import annotations

from puffin_index.errors import PuffinIndexError


class BenchError(PuffinIndexError):
    """Say that a benchmark step cannot go on: missing data, a tool that failed, rows that did not arrive."""
