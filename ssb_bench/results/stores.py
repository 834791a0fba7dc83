"""What was measured of tables in a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["index", "none"]


@dataclass(frozen=True, slots=True)
class StoreStep:
    """One piece of work at one distance: a median execution.

    Attributes:
        milliseconds: From a request to the first byte of its answer.
        megabytes_a_second: Bandwidth each way; None for no bound.
        name: What was done.
        side: With the index, or without any.
        seconds: Wall time.
        rounds: Sequential rounds: the longest chain of requests, each of which began after the end of the one before.
        requests: Requests.
        by_kind: Requests of each kind: `GET`, `RANGE`, `HEAD`, `LIST`, `PUT`, `POST`, `DELETE`.
        most_at_once: The most requests under way at one time.
        bytes_in: Bytes read.
        bytes_out: Bytes written.
        answer: Rows that were counted, read or indexed, or segments that were left; None if nothing was.
    """

    milliseconds: float
    megabytes_a_second: float | None
    name: str
    side: Side
    seconds: float
    rounds: int
    requests: int
    by_kind: dict[str, int]
    most_at_once: int
    bytes_in: int
    bytes_out: int
    answer: int | None


@dataclass(frozen=True, slots=True)
class StoreRun:
    """Work on tables in a store.

    Attributes:
        scale_factor: Scale factor of lineorder.
        machine: Hardware and versions.
        rows: Rows of lineorder.
        data_files: Its data files.
        data_bytes: Their bytes.
        index_bytes: Bytes of its index.
        segments: Segments of its index.
        steps: What was measured.
        failures: Answers with the index that differ from those without.
    """

    scale_factor: float
    machine: dict[str, str | int]
    rows: int
    data_files: int
    data_bytes: int
    index_bytes: int
    segments: int
    steps: tuple[StoreStep, ...]
    failures: tuple[str, ...]
