"""Dates and times of a WHERE text on the columns of a table, without Spark: pruned, counted, and shown where unused."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import planner
from planner.condition.session_time import zone_named
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import NotFoundError, UnsupportedError, WhereSyntaxError
from tests.conftest import temporary_catalog
from tests.planner.ten_rows import build_index

START = datetime(2020, 1, 1)
HOURS = [START + timedelta(hours=hour) for hour in range(48)]


@pytest.fixture(scope="module")
def index() -> Iterator[TableIndex]:
    """48 hours in 12 row groups, by column type."""
    data = pa.table(
        {
            "ts": pa.array([hour.replace(tzinfo=UTC) for hour in HOURS], pa.timestamp("us", "UTC")),
            "nt": pa.array(HOURS, pa.timestamp("us")),
            "dt": pa.array([hour.date() for hour in HOURS], pa.date32()),
            "t": pa.array([hour.time() for hour in HOURS], pa.time64("us")),
        }
    )
    with temporary_catalog() as catalog:
        yield build_index(catalog, data, 4, IndexDefinition.of(bsi=["ts", "nt", "dt", "t"]))


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


@pytest.mark.parametrize("literal", ["TIMESTAMP '1880-01-10 13:24:43'", "'1880-01-10 13:24:43'", "DATE '1970-01-01'"])
def test_a_time_of_a_place_that_databases_may_tell_otherwise_is_unknown(index: TableIndex, literal: str) -> None:
    where = f"ts = {literal}"
    for zone in ("UTC", "+00:20"):
        assert planner.count(index, where, session_zone=zone).rows == 0
    scan_plan = planner.plan(index, where, session_zone="Europe/Amsterdam")
    assert scan_plan.kept == scan_plan.row_groups
    with pytest.raises(
        UnsupportedError, match="only Spark knows which instant the literal means: write the instant with"
    ):
        planner.count(index, where, session_zone="Europe/Amsterdam")
    certain = "ts >= TIMESTAMP '1880-01-10 13:24:43+00:19' AND ts >= DATE '1970-01-02'"
    assert planner.count(index, certain, session_zone="Europe/Amsterdam").rows == 48


def test_zones_by_name_and_offset() -> None:
    assert zone_named("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    assert zone_named("Etc/GMT+5").utcoffset(None) == timedelta(hours=-5)
    for name, minutes in (("-05:30", -330), ("UTC+1", 60), ("+18", 1080), ("GMT", 0), ("Z", 0)):
        assert zone_named(name) == timezone(timedelta(minutes=minutes))
    with pytest.raises(NotFoundError, match=r"no time zone 'Europe/Berln'; .* UTC; did you mean 'Europe/Berlin'\?"):
        zone_named("Europe/Berln")


@pytest.mark.parametrize("name", ["EST", "WET", "PST", "localtime", "right/Europe/Berlin", "../UTC", "+19", "", " "])
def test_a_zone_that_java_may_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(NotFoundError, match=rf"there is no time zone '{re.escape(name)}'; there are such as"):
        zone_named(name)
