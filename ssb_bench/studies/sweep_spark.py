"""Spark's times, without and with the index, for some points of the sweep."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
from pyspark.sql import SparkSession

from ssb_bench.errors import BenchError
from ssb_bench.spark_runs.arms import Arm, Sessions, open_sessions
from ssb_bench.spark_runs.measure import measure
from ssb_bench.spark_runs.session import CATALOG
from ssb_bench.spark_runs.turns import time_in_turns
from ssb_bench.studies.sweep import NAMESPACE, SweepPoint, draw_where, table_name, where_text

_SELECTIVITIES: Final = (1e-7, 1e-5, 1e-3)
_PREDICATES: Final = (1, 3)
_REPEATS: Final = 3
_SIDES: Final[tuple[Arm, ...]] = ("without", "with")
_SEED: Final = 20_241


def time_sweep(spark: SparkSession, points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """Measure the points of rows in no order, in the smallest row groups, with some selectivities.

    Raises:
        BenchError: If the answers without and with the index differ.
    """
    smallest = min(point.row_group_rows for point in points)
    random = np.random.default_rng(_SEED)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
    with open_sessions(spark, NAMESPACE) as sessions:
        return [_timed(sessions, point, random) if _is_chosen(point, smallest) else point for point in points]


def _is_chosen(point: SweepPoint, row_group_rows: int) -> bool:
    return (
        point.clustering == "random"
        and point.row_group_rows == row_group_rows
        and point.predicates in _PREDICATES
        and any(np.isclose(point.selectivity, chosen, rtol=1e-6, atol=0) for chosen in _SELECTIVITIES)
    )


def _timed(sessions: Sessions, point: SweepPoint, random: np.random.Generator) -> SweepPoint:
    where = where_text(draw_where(random, point.predicates, point.selectivity))
    table = table_name(point.clustering, point.row_group_rows).rpartition(".")[2]
    sql = f"SELECT count(*), sum(c1) FROM {table} WHERE {where}"
    answers = set()

    def run(session: SparkSession) -> float:
        measured = measure(session, sql)
        answers.add(measured.answer)
        return measured.seconds

    times = time_in_turns({side: partial(run, sessions.of[side]) for side in _SIDES}, _REPEATS)
    if len(answers) > 1:
        raise BenchError(f"without the index and with it, the answers differ: {answers}: {sql}")
    without, with_index = (statistics.median(times[side]) for side in _SIDES)
    return replace(point, without_seconds=without, with_seconds=with_index)
