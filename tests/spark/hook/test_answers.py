"""What the rule does with an answer: the answer drops the row groups that it names, and any other answer keeps all."""

from collections.abc import Iterator

import pytest
from pyroaring import BitMap
from pyspark.sql import SparkSession

import planner
from planner.spark.hook import callback_of
from planner.spark.requests.wire import KEEP_ALL, serialize_dropped
from puffin_index import TableIndex
from ssb_bench.spark_runs.measure import measure
from tests.spark.hook.items import ROW_GROUP_ROWS, ROWS

pytestmark = pytest.mark.spark

SQL = "SELECT SUM(price) FROM lake.ns.items WHERE k = 4711"
ALL = serialize_dropped(BitMap(range(ROWS // ROW_GROUP_ROWS)), "")


@pytest.fixture
def session(spark: SparkSession, items: TableIndex) -> Iterator[SparkSession]:
    """A hook that survives trouble and knows the view of the table."""
    assert items.name == "ns.items"
    planner.enable(spark)
    spark.sql(SQL).collect()
    assert [plan.dropped for plan in planner.reports(spark)] == [19]
    yield spark
    planner.disable(spark)
    spark.conf.unset("spark.puffin-index.strict")


@pytest.fixture
def asked(session: SparkSession, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> list[str]:
    """Requests that have got `answer`."""
    requests: list[str] = []

    def give(_: object, request: str, __: bytes) -> bytearray:
        requests.append(request)
        return bytearray(answer)

    monkeypatch.setattr(type(callback_of(session)), "apply", give)
    return requests


@pytest.mark.parametrize("answer", [serialize_dropped(BitMap(range(3, 8)), "")])
def test_an_answer_drops_what_it_names(session: SparkSession, asked: list[str]) -> None:
    assert measure(session, SQL).rows_read == ROWS - 5 * ROW_GROUP_ROWS
    assert len(asked) == 1


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("answer", "is_broken"),
    [
        (KEEP_ALL, False),
        (serialize_dropped(BitMap(), ""), False),
        (serialize_dropped(BitMap([1_000, 4_000_000_000]), ""), False),
        (b"A" + bytes(8), False),
        (b"A", True),
        (b"V", True),
        (b"Vgarbage", True),
        (b"D", True),
        (b"D\0", True),
        (b"D\0\0", True),
        (b"D\0\0garbage", True),
        (b"D\xff\xff" + ALL[3:], True),
        (ALL[:-1], True),
        (ALL + b"\0", True),
        (b"\0" + ALL, True),
        (b"K" + ALL[1:], True),
        (b"\xa5" * 1_000, True),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_an_answer_without_row_groups_keeps_all(session: SparkSession, asked: list[str], *, is_broken: bool) -> None:
    assert measure(session, SQL).rows_read == ROWS
    assert asked
    session.conf.set("spark.puffin-index.strict", "true")
    if is_broken:
        with pytest.raises(Exception, match="puffin-index"):
            session.sql(SQL).collect()
    else:
        assert measure(session, SQL).rows_read == ROWS
