"""The law of the planner on very many pairs of a table and a predicate, other ones each time.

    python -m tests.planner.laws.pairs --pairs 50000

Each table is made of a seed, each predicate of that seed and a number, so that one pair can be repeated alone.
"""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from random import Random, SystemRandom
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from planner.arrow.aggregate import aggregate, count
from planner.arrow.arrow_scan import scan
from planner.condition.sql.parser import read_where
from planner.condition.tree.simplify import simplified
from planner.prune.gate import Limits
from planner.view.index_view import IndexView
from planner.view.views import view_of
from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import DataFile, list_data_files
from puffin_index.errors import PuffinIndexError, UnsupportedError
from tests.conftest import temporary_catalog
from tests.oracle import Predicate
from tests.planner.condition.where_text import Writer
from tests.planner.laws.random_predicates import random_predicate
from tests.planner.laws.random_tables import SCHEMA, TYPES, RandomTable
from tests.planner.plan_files import plan_files

PAIRS_A_TABLE = 250
_TROUBLE = (
    PuffinIndexError,
    AssertionError,
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pa.ArrowException,
)
"""What a wrong pair may raise: recorded, so that the others are run as well."""


class Trial:
    def __init__(self, seed: int, catalog: SqlCatalog) -> None:
        self.seed = seed
        self.table = RandomTable.make(seed, catalog)
        self.dropped = self.refused = 0
        index = self.table.index
        self.files: tuple[DataFile, ...] = list_data_files(index.data_table)
        self.view: IndexView = view_of(index.index_table, reading_of(index.data_table))

    def ask(self, pair: int) -> tuple[Predicate, str]:
        random = Random(f"{self.seed}/{pair}")
        predicate = random_predicate(random, self.table)
        return predicate, Writer(random.choice).predicate(predicate)

    def check(self, pair: int) -> None:
        """Hold one pair against the oracle."""
        predicate, where = self.ask(pair)
        random = Random(f"{self.seed}/{pair}/how")
        matching = {path: append.truths(predicate) == 1 for path, append in self.table.appends.items()}
        # If rows are wanted, indexes are asked that would not be worth it for the little data here.
        limits = Limits(rows_wanted=random.random() < 0.5)
        # Wide tests are looked up among the rows of others, as where their rows are many.
        with patch("planner.prune.leaf_payloads._FEW_ROWS", random.choice([0, 2, 1000])):
            self.check_plan(where, limits, matching)
            if random.random() < 0.3:
                live = {path: rows & ~self.table.deleted[path] for path, rows in matching.items()}
                self.check_count(where, sum(int(rows.sum()) for rows in live.values()))
                if random.random() < 0.2:
                    self.check_scan(where, live)
                elif random.random() < 0.3:
                    self.check_groups(where, live)
                elif random.random() < 0.3:
                    self.check_first_rows(where, live, random)

    def check_plan(self, where: str, limits: Limits, matching: dict[str, np.ndarray]) -> None:
        schema = self.table.index.data_table.schema()
        plan = plan_files(self.view, simplified(read_where(where, schema)), self.files, limits)
        assert plan.warnings == (), plan.warnings
        for path, file_of in {file.path: number for number, file in enumerate(self.files)}.items():
            here = np.flatnonzero(plan.file_of == file_of)
            starts = np.arange(0, len(matching[path]), self.table.row_group_rows)
            assert len(here) == len(starts), f"{path} has {len(starts)} row groups, not {len(here)}"
            counts = np.add.reduceat(matching[path], starts, dtype=np.int64)[plan.ordinals[here]]
            dropped, known = ~plan.kept_mask[here], plan.matches[here]
            assert not counts[dropped].any(), f"row groups {np.flatnonzero(dropped & (counts > 0))} of {path} dropped"
            wrong = np.flatnonzero((known >= 0) & (known != counts))
            assert not len(wrong), f"row groups {wrong} of {path}: {known[wrong]} rows, not {counts[wrong]}"
            self.dropped += int(dropped.sum())

    def check_count(self, where: str, expected: int) -> None:
        try:
            found = count(self.table.index, where, refresh=False).rows
        except UnsupportedError:
            self.refused += 1
            return
        assert found == expected, f"{found} rows counted, not {expected}"

    def check_groups(self, where: str, live: dict[str, np.ndarray]) -> None:
        rows = {path: append.columns["j"].rows for path, append in self.table.appends.items()}
        expected = Counter(rows[path][at] for path, flags in live.items() for at in np.flatnonzero(flags))
        try:
            found = aggregate(self.table.index, where, "count(*)", group_by="j", refresh=False)
        except UnsupportedError:
            return
        counted = dict(zip(found["j"].to_pylist(), found["count(*)"].to_pylist(), strict=True))
        assert counted == expected, f"groups {counted}, not {expected}"

    def check_first_rows(self, where: str, live: dict[str, np.ndarray], random: Random) -> None:
        column, limit = random.choice([*TYPES]), random.choice([1, 3, 20])
        descending, nulls_first = random.random() < 0.5, random.random() < 0.5
        text = f"{column} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
        order_by = random.choice([None, text, text, text])
        try:
            table = scan(self.table.index, where, [column], order_by=order_by, limit=limit, refresh=False).read_all()
        except UnsupportedError:
            return
        found = [_spark_order(value) for value in table[column].to_pylist()]
        rows = {path: append.columns[column].rows for path, append in self.table.appends.items()}
        values = [_spark_order(rows[path][at]) for path, flags in live.items() for at in np.flatnonzero(flags)]
        known = sorted((value for value in values if value is not None), reverse=descending)
        nulls = [None] * (len(values) - len(known))
        expected = ([*nulls, *known] if nulls_first else [*known, *nulls])[:limit]
        if order_by is None:
            assert len(found) == len(expected), f"{len(found)} rows, not {len(expected)}"
            assert Counter(found) <= Counter(values), f"rows {found} of {values}"
        else:
            assert found == expected, f"first rows by {order_by}: {found}, not {expected}"

    def check_scan(self, where: str, live: dict[str, np.ndarray]) -> None:
        appends = self.table.appends
        expected = np.concatenate([np.flatnonzero(rows) + appends[path].first for path, rows in live.items()])
        try:
            found = scan(self.table.index, where, refresh=False).read_all()
        except UnsupportedError:
            return
        assert found.schema.names == SCHEMA.names
        assert np.array_equal(np.sort(found["n"].to_numpy()), np.sort(expected)), f"rows {found['n']}, not {expected}"


def _spark_order(value: Any) -> Any:
    """Something that sorts as Spark does: NaN after everything else, both zeros equal; None of NULL."""
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return value.encode() if isinstance(value, str) else value


@dataclass
class Tried:
    """What came of the pairs of one table; also an outcome where the table could not even be made."""

    dropped: int = 0
    refused: int = 0
    failures: list[dict[str, object]] = field(default_factory=list)


def run_table(seed: int, pairs: range) -> Tried:
    repeat = f"python -m tests.planner.laws.pairs --seed {seed}"
    tried = Tried()
    with temporary_catalog() as catalog:
        try:
            trial = Trial(seed, catalog)
        except _TROUBLE:
            problem = traceback.format_exc(limit=-3)
            tried.failures.append({"seed": seed, "where": "making the table", "problem": problem, "command": repeat})
            return tried
        for pair in pairs:
            try:
                trial.check(pair)
            except _TROUBLE:
                problem, command = traceback.format_exc(limit=-3), f"{repeat} --pair {pair}"
                where = trial.ask(pair)[1]
                tried.failures.append(
                    {"seed": seed, "pair": pair, "where": where, "problem": problem, "command": command}
                )
    tried.dropped, tried.refused = trial.dropped, trial.refused
    return tried


@click.command(context_settings={"show_default": True})
@click.option("--pairs", default=50_000, help="How many pairs to try, of new tables each time.")
@click.option("--seed", type=int, help="Repeat pairs of this table instead.")
@click.option("--pair", type=int, help="Of that table just this pair.")
def main(pairs: int, seed: int | None, pair: int | None) -> None:
    """Hold the planner against an oracle on pairs of a random table and a random predicate."""
    numbers = range(PAIRS_A_TABLE) if pair is None else range(pair, pair + 1)
    first = SystemRandom().randrange(2**40) if seed is None else seed
    tables = 1 if seed is not None else -(-pairs // PAIRS_A_TABLE)
    started = time.perf_counter()
    dropped = refused = wrong = 0
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        trying = [processes.submit(run_table, number, numbers) for number in range(first, first + tables)]
        for ended in as_completed(trying):
            tried = ended.result()
            dropped, refused, wrong = dropped + tried.dropped, refused + tried.refused, wrong + len(tried.failures)
            for failure in tried.failures:
                click.echo("\n{command}\n{where}\n{problem}".format(**failure))
    click.echo(
        f"{tables * len(numbers)} pairs of {tables} tables in {time.perf_counter() - started:.0f} s, "
        f"{dropped} row groups dropped, {refused} counts refused, {wrong} pairs wrong"
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
