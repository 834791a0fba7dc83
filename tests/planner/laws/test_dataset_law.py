"""The law of datasets: filters and columns give the rows that Arrow itself gives of the same table, for every type."""

from __future__ import annotations

import math
from contextlib import ExitStack
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import planner
from planner.condition.arrow.read import read_expression
from puffin_index.data.data_table import list_data_files
from tests.conftest import amount, open_catalog
from tests.planner.laws.random_tables import TYPES, RandomTable, sayable

COMPARISONS = (pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal)
FOREIGN = (
    *(7, 2**40, 2.5, math.nan, math.inf, -0.0, "a", b"a", True, Decimal("0.25"), date(2024, 1, 2)),
    *(datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),
    *(pa.scalar(1, pa.int8()), pa.scalar(0.25, pa.float32()), pa.scalar(1, pa.timestamp("ns"))),
    # Python has no such day and no such time.
    *(pa.scalar(2**24, pa.int32()).cast(pa.date32()), pa.scalar(2**40, pa.timestamp("s"))),
)


def literal(random: Random, column: str) -> pa.Scalar:
    """A value that a column can hold, sometimes NULL or of another type; floats of a table hold NaN and infinities."""
    kind = field_type(column)
    chance = random.random()
    if chance < 0.05:
        return pa.scalar(None, kind)
    if chance < 0.2:
        value = random.choice(FOREIGN)
        return value if isinstance(value, pa.Scalar) else pa.scalar(value)
    if chance < 0.35 and column in "fg":
        return pa.scalar(random.choice([math.nan, math.inf, -math.inf, 0.0, -0.0]), kind)
    return pa.scalar(sayable(column, random), kind)


def leaf(random: Random) -> pc.Expression:
    column = random.choice([*TYPES, "u.v"])
    field = pc.field(*column.split("."))
    match random.randrange(12):
        case 0:
            return field.is_null(nan_is_null=random.random() < 0.5)
        case 1:
            return field.is_valid()
        case 2:
            return pc.field(random.choice("fg")).is_nan()
        case 3:
            return pc.field("b")
        case 4:
            return pc.starts_with(pc.field("s"), sayable("s", random), ignore_case=random.random() < 0.2)
        case 5 | 6:
            some = [literal(random, column) for _ in range(random.choice([0, 1, 3, 20]))]
            kind = field_type(column)
            members = pa.array([one for one in some if one.type == kind], kind)
            members = members.cast(pa.int64()) if column == "j" else members
            found = pc.is_in(field, value_set=members, skip_nulls=random.random() < 0.3)
            return pc.if_else(field.is_valid(), found, pa.scalar(None, pa.bool_())) if random.random() < 0.4 else found
        case 7:
            return random.choice(COMPARISONS)(field, pc.field(random.choice(list(TYPES))))
        case _:
            sides = [field, pc.scalar(literal(random, column))]
            random.shuffle(sides)
            return random.choice(COMPARISONS)(*sides)


def field_type(column: str) -> pa.DataType:
    return pa.int64() if column == "u.v" else TYPES[column]


def expression(random: Random, leaves: int) -> pc.Expression:
    if random.random() < 0.25:
        return ~expression(random, leaves)
    if leaves == 1:
        return leaf(random)
    left = random.randrange(1, leaves)
    one, other = expression(random, left), expression(random, leaves - left)
    return one & other if random.random() < 0.5 else one | other


def rows_of(source: ds.Dataset, **options: Any) -> list[dict[str, Any]] | type[Exception]:
    try:
        return source.to_table(**options).to_pylist()
    except pa.ArrowException as error:
        return type(error)


def live_rows(table: RandomTable) -> pa.Table:
    """The rows that are not deleted, by data file in the order of a scan. PyIceberg reads no equality deletes."""
    paths = [file.path for file in list_data_files(table.index.data_table)]
    return pa.concat_tables(pq.read_table(urlparse(path).path).filter(pa.array(~table.deleted[path])) for path in paths)


@pytest.mark.parametrize("seed", range(amount(3, 60)))
def test_datasets_give_the_rows_that_arrow_gives(seed: int) -> None:
    random, exact, refused = Random(seed), 0, 0
    with ExitStack() as opened:
        catalog = opened.enter_context(open_catalog(Path(opened.enter_context(TemporaryDirectory()))))
        table = RandomTable.make(seed, catalog)
        index = table.index
        indexed = planner.dataset(index)
        plain = ds.InMemoryDataset(live_rows(table).cast(indexed.schema))
        for _ in range(80):
            asked = expression(random, random.choice([1, 1, 2, 3, 5]))
            columns = random.choice([None, ["n"], random.sample(indexed.schema.names, 3), {"twice": pc.field("n") * 2}])
            expected = rows_of(plain, filter=asked, columns=columns)
            if isinstance(expected, type):
                refused += 1
                continue
            found = rows_of(indexed, filter=asked, columns=columns)
            assert repr(found) == repr(expected), (seed, str(asked), columns)
            assert indexed.count_rows(asked) == len(expected), (seed, str(asked))
            assert len(indexed.head(3, filter=asked)) == min(3, len(expected)), (seed, str(asked))
            exact += read_expression(asked, index.data_table.schema()).exact
    # Most filters are understood, and few make no sense for the types of their columns.
    assert exact > 20
    assert refused < 40
