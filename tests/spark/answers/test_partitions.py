"""Partition values of instants that Spark writes: far ones, whose hours wrap around, and those before 1970."""

import operator
import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, TimestampNanoType, TimestampType
from pyspark.sql import SparkSession

import planner
from puffin_index import TableIndex
from tests.conftest import built
from tests.planner.laws.java_transforms import java_value

pytestmark = pytest.mark.spark

HOUR = 3_600 * 10**6
PERIODS = ["year", "month", "day", "hour"]
INSTANTS = [
    *(-(2**63), -(2**31) * HOUR - 1, -365 * 24 * HOUR + 999_999, -24 * HOUR + 999_999, -HOUR + 999_999, -HOUR, -1, 0),
    *(1_577_836_800 * 10**6, 2**31 * HOUR - 1, 2**31 * HOUR, 2**63 - 1),
]
WRITTEN = ["month", "hour"]
ROWS = dict(enumerate(INSTANTS * len(WRITTEN)))


@pytest.fixture(scope="module")
def index(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    """A file for each instant and transform. Without bounds, nothing but the partition value tells of its row."""
    spark.sql(
        "CREATE TABLE lake.ns.instants (id BIGINT, ts TIMESTAMP) USING iceberg PARTITIONED BY (month(ts)) "
        "TBLPROPERTIES ('write.metadata.metrics.default'='none')"
    )
    for at, period in enumerate(WRITTEN):
        if at:
            spark.sql(f"ALTER TABLE lake.ns.instants REPLACE PARTITION FIELD ts_{WRITTEN[at - 1]} WITH {period}(ts)")
        rows = [*ROWS.items()][at * len(INSTANTS) :][: len(INSTANTS)]
        spark.createDataFrame(rows, "id BIGINT, micros BIGINT").createOrReplaceTempView("instants")
        spark.sql("INSERT INTO lake.ns.instants SELECT id, timestamp_micros(micros) FROM instants")
    return built(catalog, "ns.instants", bitmap=["id"])


def test_no_door_loses_a_row_by_the_period_of_its_instant(index: TableIndex) -> None:
    data, kind = planner.dataset(index), pa.timestamp("us", "UTC")
    for instant in INSTANTS[1:]:
        column, literal = pc.field("ts"), pa.scalar(instant, kind)
        tests = {operator.lt: column < literal, operator.ge: column >= literal, operator.eq: column == literal}
        for holds, expression in tests.items():
            expected = [number for number, own in ROWS.items() if holds(own, instant)]
            assert sorted(data.to_table(columns=["id"], filter=expression)["id"].to_pylist()) == expected, instant
        keys = {"ts": pa.array([instant], kind)}
        assert planner.count(index, keys=keys).rows == planner.locate(index, keys).num_rows == len(WRITTEN)


def test_a_text_finds_what_spark_finds_by_a_filter_that_it_keeps_back(spark: SparkSession, index: TableIndex) -> None:
    where, kept_back = "ts >= TIMESTAMP '2020-01-01 00:00:00Z'", "unix_micros(ts) >= 1577836800000000"
    of_pushed, expected = (
        sorted(row.id for row in spark.sql(f"SELECT id FROM lake.ns.instants WHERE {test}").collect())
        for test in (where, kept_back)
    )
    assert sorted(planner.scan(index, where, ["id"]).read_all()["id"].to_pylist()) == expected
    assert planner.count(index, where).rows == len(expected)
    assert planner.plan(index, where, strict=True).row_groups < len(ROWS)
    # Iceberg's own filter loses far hours, and takes those from before its zero for matches.
    assert of_pushed != expected


JAVA: dict[str, tuple[IcebergType, int, int, list[str]]] = {
    "Timestamp": (TimestampType(), 64, 10**6, PERIODS),
    "TimestampNano": (TimestampNanoType(), 64, 10**9, PERIODS),
    "Date": (DateType(), 32, 1, PERIODS[:3]),
    "Integer": (IntegerType(), 32, 1, ["truncate[7]", "truncate[1073741825]", "truncate[2147483647]", "bucket[7]"]),
    "Long": (LongType(), 64, 1, ["truncate[7]", "truncate[2147483647]", "bucket[7]"]),
}


@pytest.mark.parametrize("name", JAVA)
def test_the_model_of_the_laws_is_what_icebergs_classes_compute(spark: SparkSession, name: str) -> None:
    source, bits, second, transforms = JAVA[name]
    gateway: Any = spark.sparkContext._gateway
    java, chosen = gateway.jvm, random.Random(name)
    kind = getattr(java.org.apache.iceberg.types.Types, f"{name}Type")
    kind = kind.withoutZone() if "Timestamp" in name else kind.get()
    values = [_hostile(chosen, bits, second) for _ in range(60)]
    array = gateway.new_array(java.long if bits == 64 else java.int, len(values))
    for at, value in enumerate(values):
        array[at] = value
    for text in transforms:
        function = java.org.apache.iceberg.transforms.Transforms.fromString(text).bind(kind)
        computed = list(java.java.util.Arrays.stream(array).boxed().map(function).toArray())
        assert computed == [java_value(parse_transform(text), source, value) for value in values], text


def _hostile(chosen: random.Random, bits: int, second: int) -> int:
    """A value near to one of the ends, or to the begin of some hour before or after 1970, or any."""
    end, hour = 2 ** (bits - 1), 3_600 * second
    near = chosen.choice([-end, end - 1, 0, chosen.randrange(-(10**6), 10**6) * hour, chosen.randrange(-end, end)])
    return max(-end, min(end - 1, near + chosen.choice([0, 1, -1, 2, second, second - 1, -second])))
