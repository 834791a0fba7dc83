"""Dates and times of a WHERE text on the columns of a table, without Spark: pruned, counted, and shown where unused."""

from datetime import UTC, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.condition.session_time import zone_named
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import NotFoundError, WhereSyntaxError
from tests.planner.ten_rows import build_index

START = datetime(2020, 1, 1)
HOURS = [START + timedelta(hours=hour) for hour in range(48)]


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    """48 hours in 12 row groups, by column type."""
    data = pa.table(
        {
            "ts": pa.array([hour.replace(tzinfo=UTC) for hour in HOURS], pa.timestamp("us", "UTC")),
            "nt": pa.array(HOURS, pa.timestamp("us")),
            "dt": pa.array([hour.date() for hour in HOURS], pa.date32()),
            "t": pa.array([hour.time() for hour in HOURS], pa.time64("us")),
        }
    )
    return build_index(local_catalog, data, 4, IndexDefinition.of(bsi=["ts", "nt", "dt", "t"]))


def test_the_zone_of_the_session_counts(index: TableIndex) -> None:
    where = "ts < TIMESTAMP '2020-01-01 03:00:00'"
    assert planner.count(index, where).rows == 3
    assert planner.count(index, where, session_zone="Europe/Berlin").rows == 2
    assert planner.count(index, where, session_zone="-02:00").rows == 5
    assert planner.scan(index, where, ["ts"], session_zone="-02:00").read_all().num_rows == 5
    assert planner.aggregate(index, where, "count(*) AS n", session_zone="-02:00").to_pylist() == [{"n": 5}]
    local = "nt < TIMESTAMP '2020-01-01 03:00:00'"
    assert planner.count(index, local, session_zone="-02:00").rows == 3
    # Clocks of that zone change, so two times of a column may be one instant.
    (unused,) = planner.plan(index, local, session_zone="Europe/Berlin").unused
    assert "of another kind than the column, a timestamp" in unused.reason
    assert planner.count(index, "nt < TIMESTAMP '2020-01-01 03:00:00Z'", session_zone="-02:00").rows == 1


def test_times_and_dates(index: TableIndex) -> None:
    assert planner.count(index, "t < TIME '01:30'").rows == 4
    assert planner.count(index, "t = TIME '23:00:00.000000'").rows == 2
    assert planner.count(index, "dt = '2020-1-2'").rows == 24
    assert planner.plan(index, "t < TIME '1 PM'").unused
    with pytest.raises(WhereSyntaxError, match="a time such as"):
        planner.plan(index, "t < TIME '24:00'")
    assert HOURS[1].time() == time(1)


def test_zones_by_name_and_offset() -> None:
    assert zone_named("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    assert zone_named("-05:30") == timezone(-timedelta(hours=5, minutes=30))
    with pytest.raises(NotFoundError, match=r"there is no time zone 'Europe/Berln'; did you mean 'Europe/Berlin'\?"):
        zone_named("Europe/Berln")
    with pytest.raises(NotFoundError, match=r"there is no time zone '\.\./UTC'"):
        zone_named("../UTC")
