"""Questions and their answers without an index: found in a process of its own, whose memory is not the reader's."""

import logging
import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import StaticTable

from puffin_index.jobs.worker_pool import end_with
from tests.soak.world import TROUBLE, ask, matching, names_now, read_plainly

_QUESTIONS_A_SNAPSHOT = 8


class CheckError(Exception):
    """A snapshot cannot be read without an index, as the store is in trouble."""


@dataclass(frozen=True, slots=True)
class Question:
    """A condition on a snapshot, the rows that satisfy it, and what its columns `id` and `k` are called there."""

    where: str
    rows: pa.Table
    key: str
    k: str


class Checker:
    """A process that reads snapshots by PyIceberg's own scan and asks DuckDB. It ends with the one that made it."""

    def __init__(self, store: Mapping[str, str]) -> None:
        self._store = store
        self._process = ProcessPoolExecutor(1, get_context("spawn"), _begin, (os.getpid(),))

    def questions(self, metadata: str, snapshot_id: int, seed: int) -> list[Question]:
        """Make questions about a snapshot, given the location of the table's metadata.

        Raises CheckError if the snapshot cannot be read now.
        """
        return self._process.submit(_answer, self._store, metadata, snapshot_id, seed).result()


def _begin(parent: int) -> None:
    end_with(parent)
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)


def _answer(store: Mapping[str, str], metadata: str, snapshot_id: int, seed: int) -> list[Question]:
    try:
        return _questions(StaticTable.from_metadata(metadata, dict(store)), snapshot_id, Random(seed))
    except TROUBLE as error:
        raise CheckError(f"{type(error).__name__}: {error}") from None


def _questions(table: StaticTable, snapshot_id: int, random: Random) -> list[Question]:
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    schema = table.schemas()[snapshot.schema_id] if snapshot.schema_id is not None else table.schema()
    data, names = read_plainly(table, snapshot_id), names_now(schema)
    key, k = names["id"], names["k"]
    wheres = [ask(random, names, pc.max(data[key]).as_py() or 0) for _ in range(_QUESTIONS_A_SNAPSHOT)]
    return [Question(where, matching(where, data).select([key, k]), key, k) for where in wheres]
