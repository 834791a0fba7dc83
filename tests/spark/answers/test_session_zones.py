"""Session zones: a time is placed where Java places it or nowhere, though Java and Python have a database each."""

from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from random import Random
from zoneinfo import TZPATH, available_timezones

import numpy as np
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from planner.condition.literals import instant_at
from planner.condition.session_time import zone_named
from puffin_index.errors import NotFoundError, UnsupportedError
from tests.conftest import built
from tests.spark.agreement import check_rows, row_groups_of, settings
from tests.spark.java_source import object_of

pytestmark = pytest.mark.spark

EPOCH, A_DAY = datetime(1970, 1, 1, tzinfo=UTC), 86_400
FIRST, LAST = -62_135_596_800, 253_402_300_799  # the seconds of the years 1 to 9999


def python_release() -> str:
    files = [file for root in TZPATH if (file := Path(root, "tzdata.zi")).exists()]
    return files[0].read_text().partition("\n")[0].removeprefix("# version ") if files else ""


def offset_at(zone: tzinfo, second: int) -> int:
    """What the clocks of a zone are ahead of UTC, in seconds, in Python's database."""
    # Python has no day after the year 9999.
    offset = (EPOCH + timedelta(seconds=min(second, LAST - A_DAY))).astimezone(zone).utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)


def test_a_time_is_placed_where_java_places_it_or_nowhere(spark: SparkSession, tmp_path: Path) -> None:
    java = object_of(spark, Path(__file__).with_name("TimeZones.java"), tmp_path)
    random, known, histories = Random(3), available_timezones(), set[str]()
    others, wrong = set[str](), set[str]()
    for line in java.changes().splitlines():
        name, *numbers = line.split()
        if "/" not in name or name not in known:
            continue
        zone, changes = zone_named(name), np.array(numbers, np.int64).reshape(-1, 3)
        changes = changes[changes[:, 0] >= A_DAY]
        ours = [offset_at(zone, at) for at in changes[:, 0].tolist()]
        if f"{changes.tolist()} {ours}" in histories:
            continue
        histories.add(f"{changes.tolist()} {ours}")
        walls = {FIRST, LAST, A_DAY - 1, A_DAY, *(random.randrange(FIRST, LAST) for _ in range(20))}
        walls.update((changes[:, :1, None] + changes[:, 1:, None] + [-1, 0, 1]).ravel().tolist())
        placed = {wall: instant_at(wall * 1_000_000, zone) for wall in walls}
        is_fixed = zone.utcoffset(None) is not None
        assert all((literal is not None) == (is_fixed or wall >= A_DAY) for wall, literal in placed.items())
        found = {wall: literal.value // 1_000_000 for wall, literal in placed.items() if literal is not None}
        seconds = java.seconds(name, np.array([*found], ">i8").tobytes())
        theirs, offsets = np.frombuffer(seconds, ">i8").reshape(-1, 2).T.tolist()
        if [*found.values()] != theirs:
            wrong.add(name)
        if [offset_at(zone, at) for at in theirs] != offsets:
            others.add(name)

    # A release of the databases corrects the times of some zones, and knows new laws.
    assert wrong <= others
    assert len(others) < len(histories) / 5
    assert len(histories) > 200
    java_release = spark._jvm.java.time.zone.ZoneRulesProvider.getVersions("UTC").lastKey()
    assert not others or java_release != python_release()


TIMES = (
    "1880-01-10 13:24:43",
    "1969-12-31 23:59:59",
    "1970-01-02 00:00:00",
    "2024-10-27 02:30:00",
)


@pytest.mark.parametrize("zone", ["Europe/Amsterdam", "PST", "+01:02:03"])
def test_times_are_found_in_spark_else_found_or_refused(hooked: SparkSession, catalog: SqlCatalog, zone: str) -> None:
    hooked.sql("DROP TABLE IF EXISTS lake.ns.moments")
    hooked.sql(
        f"CREATE TABLE lake.ns.moments (id BIGINT, ts TIMESTAMP) USING iceberg TBLPROPERTIES ({row_groups_of(1)})"
    )
    with settings(hooked, {"spark.sql.session.timeZone": zone}):
        values = ", ".join(f"({number}, TIMESTAMP '{time}')" for number, time in enumerate(TIMES))
        hooked.sql(f"INSERT INTO lake.ns.moments SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
        index = built(catalog, "ns.moments", bsi=["ts"])
        for time in TIMES:
            where = f"ts = TIMESTAMP '{time}'"
            (plan,) = check_rows(hooked, f"SELECT id FROM lake.ns.moments WHERE {where}")
            assert (plan.kept, plan.row_groups) == (1, len(TIMES)), time
            is_certain = zone.startswith("+") or time >= "1970-01-02"
            for test in (where, f"ts = '{time}'", f"ts = TIMESTAMP_NTZ '{time}'"):
                if zone == "PST":
                    with pytest.raises(NotFoundError, match="there is no time zone 'PST'"):
                        planner.count(index, test, session_zone=zone)
                elif is_certain:
                    assert planner.count(index, test, session_zone=zone).rows == 1
                else:
                    with pytest.raises(UnsupportedError, match="only Spark knows which instant"):
                        planner.count(index, test, session_zone=zone)
                    assert planner.plan(index, test, session_zone=zone).kept == len(TIMES)
