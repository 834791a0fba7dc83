"""The scan plans that a hook keeps for its sessions: the latest ones, within a bound of memory."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import given, strategies as st

from planner.report.scan_plan import ScanPlan
from planner.spark.read_index import Reports
from tests.planner.spark.requests.jvm_messages import request_of

ROW_GROUPS = 100_000


def _plan(where: str, row_groups: int = 1) -> ScanPlan:
    numbers = np.zeros(row_groups, np.int64)
    reasons = np.zeros(row_groups, np.uint8)
    return ScanPlan("lake.ns.t", 1, where, ("a",), numbers, numbers, numbers, reasons, numbers, (), 0, 0, 0.0)


def test_each_session_has_its_latest_plans() -> None:
    reports, requests = Reports(), [request_of(session=name) for name in ("one", "other")]
    for number in range(300):
        reports.add(_plan(str(number)), requests[number % 2])

    assert [plan.where for plan in reports.of("one")] == [str(number) for number in range(100, 300, 2)]
    assert len(reports.of("other")) == 100


def test_plans_of_very_many_row_groups_and_sessions_stay_within_their_memory() -> None:
    reports = Reports()
    for number in range(100):
        reports.add(_plan(str(number), ROW_GROUPS), request_of(session=str(number)))

    kept = [plan for number in range(100) for plan in reports.of(str(number))]
    assert [plan.where for plan in kept] == [str(number) for number in range(100 - len(kept), 100)]
    assert 32 << 20 < sum(plan.nbytes for plan in kept) <= 64 << 20

    reports.add(_plan("huge", 30 * ROW_GROUPS), request_of(session="last"))
    assert len(reports.of("last")) == 1
    assert not reports.of("99")


VERSIONS = [tuple(f"version-{version}/{number}" for number in range(10 ** (version % 4))) for version in range(8)]


@given(
    most_bytes=st.sampled_from([0, 6_000, 40_000, 400_000]),
    steps=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 7), st.sampled_from(["count(*)", "max(k)"]), st.booleans()),
        max_size=60,
    ),
)
def test_reports_keep_what_fits_whatever_comes_and_goes(
    most_bytes: int, steps: list[tuple[str, int, str, bool]]
) -> None:
    reports, kept = Reports(most_bytes), OrderedDict[str, list[ScanPlan]]()
    for number, (session, version, text, is_taken_back) in enumerate(steps):
        if is_taken_back:
            reports.withdraw(text, request_of(session=session, table="lake.ns.t"))
            if own := [plan for plan in kept.get(session, ()) if plan.answered.startswith(text)]:
                kept[session].remove(own[-1])
        else:
            plan = replace(_plan(str(number)), data_files=VERSIONS[version], answered=f"{text}: 1 row group")
            reports.add(plan, request_of(session=session, table="lake.ns.t"))
            kept.setdefault(session, []).append(plan)
            kept.move_to_end(session)
            while _bytes_of(kept) > most_bytes and sum(map(len, kept.values())) > 1:
                next(iter(kept.values())).pop(0)
                kept = OrderedDict((name, own) for name, own in kept.items() if own)
        kept = OrderedDict((name, own) for name, own in kept.items() if own)

        assert {name: reports.of(name) for name in "abc"} == {name: kept.get(name, []) for name in "abc"}


def _bytes_of(kept: Mapping[str, list[ScanPlan]]) -> int:
    plans = [plan for own in kept.values() for plan in own]
    locations = {id(plan.data_files): plan.location_bytes for plan in plans}
    return sum(plan.nbytes for plan in plans) + sum(locations.values())
