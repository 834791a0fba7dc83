"""The cost gate: what costs more than it saves, or more than the budget, is not read and not dropped."""

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

from planner import scan
from planner.arrow.plan import plan, plan_scan
from planner.condition.tree.nodes import Leaf
from planner.prune.gate import DEFAULT_BYTE_BUDGET, Limits
from planner.report.scan_plan import ScanPlan
from planner.view.experience import Experience
from puffin_index import IndexDefinition, TableIndex
from puffin_index.keys.leaf import SetTest
from tests.conftest import built
from tests.planner.ten_rows import build_index

ROWS, ROW_GROUP_ROWS = 20_000, 1_000


@pytest.fixture
def index(local_catalog: SqlCatalog, request: pytest.FixtureRequest) -> TableIndex:
    chooser = np.random.default_rng(9)
    data = pa.table(
        {
            "k": pa.array(chooser.permutation(ROWS) * 7, pa.int64()),
            "few": pa.array(chooser.integers(0, 5, ROWS), pa.int32()),
        }
    )
    kind, _, compression = request.param.partition(" ")
    options = {f"{column}.compression": compression for column in ("k", "few") if compression}
    definition = IndexDefinition.of(**{kind: ["k", "few"]}, options=options)
    return build_index(local_catalog, data, ROW_GROUP_ROWS, definition)


@pytest.mark.parametrize("index", ["bitmap", "bsi", "bsi none", "bloom"], indirect=True)
def test_what_the_budget_does_not_suffice_for_is_kept(index: TableIndex) -> None:
    free = plan(index, "k = 70007")
    assert free.kept == 1
    assert free.index_bytes_read > 0
    none = plan(index, "k = 70007", byte_budget=0)
    assert none.kept == none.row_groups
    assert sum(stage.bytes_read for stage in none.funnel[2:]) == 0


@pytest.mark.parametrize("index", ["bsi none"], indirect=True)
def test_part_of_the_budget_answers_part_of_the_row_groups(index: TableIndex) -> None:
    whole = plan(index, "k = 70007").funnel[-1].bytes_read
    part = plan(index, "k = 70007", byte_budget=whole // 2)
    reasons = part.reason_counts()
    assert reasons["over-budget"] > 0
    assert reasons["rows-empty"] > 0
    assert part.funnel[-1].bytes_read <= whole // 2 + 16_384


@pytest.mark.parametrize("index", ["bsi none"], indirect=True)
def test_a_large_scan_may_read_more(index: TableIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plan(index, "k = 70007").funnel[-1].bytes_read
    assert plan(index, "k = 70007", byte_budget=whole // 4).reason_counts()["over-budget"] > 0
    monkeypatch.setattr("planner.prune.gate._LARGE_BYTES", 1)
    assert "over-budget" not in plan(index, "k = 70007", byte_budget=whole // 4).reason_counts()
    assert plan(index, "k = 70007", byte_budget=0).kept == ROWS // ROW_GROUP_ROWS


@pytest.mark.parametrize(("gigabytes", "times"), [(0, 1), (4, 1), (6, 1.5), (20, 5), (2000, 5)])
def test_limits_grow_with_large_scans_up_to_five_times(gigabytes: int, times: float) -> None:
    assert Limits(byte_budget=100, seconds=2).of_scan(gigabytes << 30) == Limits(
        byte_budget=int(100 * times), seconds=2 * times
    )


@pytest.mark.parametrize("index", ["bsi"], indirect=True)
def test_one_read_answers_for_all_small_row_groups(index: TableIndex) -> None:
    plan(index, "k = 7")  # reads the directory
    for where, kept in (("k = 70007", 1), ("k IN (70007, 3)", 1), ("k BETWEEN 70001 AND 70013", 1), ("k = 70008", 0)):
        found = plan(index, where)
        rows = found.funnel[-1]
        assert (rows.name, rows.reads, found.kept) == ("rows", 1, kept)
        # A bit a row for each bit of the numbers, and one that tells which rows have a number.
        assert 8 * rows.bytes_read <= ROWS * ((7 * ROWS).bit_length() + 1)
        assert set(found.reason_counts()) <= {"rows-match", "rows-empty"}


@pytest.mark.parametrize("index", ["bitmap", "bsi", "bsi none"], indirect=True)
def test_nothing_but_directories_is_read_where_every_row_group_has_a_match(index: TableIndex) -> None:
    wide = plan(index, "few >= 1 AND k > 700")
    assert wide.kept == wide.row_groups
    assert sum(stage.bytes_read for stage in wide.funnel) <= 16_384
    assert set(wide.reason_counts()) <= {"not-worth-reading", "may-match"}
    assert plan(index, "few >= 1 AND k > 700").index_reads == 0


@pytest.mark.parametrize("index", ["bsi"], indirect=True)
def test_indexes_from_before_a_promotion_still_answer(index: TableIndex, local_catalog: SqlCatalog) -> None:
    index.data_table.update_schema().update_column("few", LongType()).commit()
    table = local_catalog.load_table("ns.t")
    table.append(pa.table({"k": pa.array(range(100), pa.int64()), "few": pa.array([9] * 100, pa.int64())}))
    index.build(workers=1)
    # Only with statistics of both types can all rows be known to match.
    assert plan(index, "few >= 0").reason_counts() == {"all-rows-match": 21}
    assert plan(index, "few = 4 AND k = 70007").kept <= 1


@pytest.mark.parametrize("index", ["bsi"], indirect=True)
def test_what_postings_answered_takes_nothing_more_of_the_budget(index: TableIndex, local_catalog: SqlCatalog) -> None:
    both = IndexDefinition.of(bitmap=["k"], bsi=["k", "few"], options={"k.layout": "postings"})
    index = built(local_catalog, "ns.t", both)

    def counted(byte_budget: int) -> ScanPlan:
        limits = Limits(rows_wanted=True, byte_budget=byte_budget)
        return plan_scan(index, "k BETWEEN 7000 AND 70000 AND few < 3", None, limits).plan

    free = counted(DEFAULT_BYTE_BUDGET)
    assert free.reason_counts() == {"rows-match": 20}
    assert free.funnel[1].bytes_read > 0
    bounded = counted(sum(stage.bytes_read for stage in free.funnel) + 16_384)
    assert bounded.reason_counts() == {"rows-match": 20}
    assert (bounded.matches == free.matches).all()


IDS, ID_ROW_GROUP_ROWS = 400_000, 5_000


@pytest.fixture(scope="module")
def random_ids(tmp_path_factory: pytest.TempPathFactory) -> tuple[TableIndex, np.ndarray]:
    """An index of ids in no order, and the ids, row by row: bounds of row groups tell nothing."""
    ids = np.random.default_rng(3).permutation(IDS)
    data = pa.table({"id": pa.array(ids, pa.int64()), "wide": pa.array(np.arange(IDS).astype(str))})
    catalog = SqlCatalog("local", uri="sqlite:///:memory:", warehouse=str(tmp_path_factory.mktemp("ids")))
    catalog.create_namespace("ns")
    return build_index(catalog, data, ID_ROW_GROUP_ROWS, IndexDefinition.of(bitmap=["id"])), ids


@pytest.mark.parametrize("count", [100, 1_000, 5_000])
def test_many_keys_of_few_row_groups_are_found(random_ids: tuple[TableIndex, np.ndarray], count: int) -> None:
    index, ids = random_ids
    chance = np.random.default_rng(count)
    newest = IDS - 1 - chance.choice(ID_ROW_GROUP_ROWS, count, replace=False)
    older = 20 * ID_ROW_GROUP_ROWS + chance.choice(ID_ROW_GROUP_ROWS, count, replace=False)
    half = count // 2
    for rows, holding in ((newest, 1), (np.concatenate([older[:half], newest[:half]]), 2)):
        assert plan(index, keys={"id": ids[rows]}).kept == holding


def test_keys_that_are_everywhere_cost_a_sample_at_most(random_ids: tuple[TableIndex, np.ndarray]) -> None:
    index, ids = random_ids
    keys = {"id": np.random.default_rng(1).choice(ids, 10_000, replace=False)}
    plan(index, keys=keys)  # reads directories
    found = plan(index, keys=keys)
    assert found.reason_counts() == {"not-worth-reading": IDS // ID_ROW_GROUP_ROWS}
    size = sum(row["file_size_in_bytes"] for row in index.data_table.inspect.files().to_pylist())
    # No more than the share of the cost of a plain scan that may be in vain.
    without = size / 4 + 128 * 1024 * found.row_groups
    assert 0 < found.index_bytes_read <= 0.02 * without
    assert plan(index, keys=keys, byte_budget=20_000).index_bytes_read == 0


def test_lists_of_two_columns_that_are_everywhere_cost_few_look_ups(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.prune.gate._READ_SHARE", 4)  # as if columns were wide
    row_groups, rows, values = 20, 20_000, 2_000
    chance = np.random.default_rng(4)
    columns = {name: chance.integers(0, values, row_groups * rows) for name in ("a", "b")}
    data = pa.table(columns | {"wide": chance.random(row_groups * rows).astype(str)})
    index = build_index(local_catalog, data, rows, IndexDefinition.of(bitmap=["a", "b"]))
    keys = {name: chance.choice(values, values // 2, replace=False) for name in columns}
    plan(index, keys=keys)  # reads directories
    found = plan(index, keys=keys)
    assert found.reason_counts() == {"not-worth-reading": row_groups}
    # Eight keys of each column tell enough.
    assert 0 < sum(stage.reads for stage in found.funnel) <= 2 * 8


def test_a_list_is_not_looked_up_where_few_of_it_are(local_catalog: SqlCatalog) -> None:
    row_groups, rows = 10, 2_000
    data = pa.table(
        {
            "id": pa.array(np.tile(2 * np.arange(rows), row_groups), pa.int64()),
            "wide": np.arange(row_groups * rows).astype(str),
        }
    )
    index = build_index(local_catalog, data, rows, IndexDefinition.of(bitmap=["id"]))
    # A row group of even numbers has no odd one, which its statistics do not tell.
    assert plan(index, keys={"id": np.arange(0, rows, 2)}).reason_counts() == {"not-worth-reading": row_groups}
    assert plan(index, keys={"id": np.arange(1, rows, 2)}).reason_counts() == {"rows-empty": row_groups}


def test_row_groups_with_one_of_the_first_keys_stay_where_others_are_looked_up(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All share one payload, whose many rows are asked for in some row groups only."""
    monkeypatch.setattr("planner.prune.leaf_payloads._FEW_ROWS", 0)
    row_groups, rows, count = 4, 2_000, 17
    first = np.linspace(0, count - 1, 8).astype(int)
    keys = 100 * np.arange(count) + ~np.isin(np.arange(count), first)
    ids = np.concatenate([2 * np.arange(rows) + number % 2 for number in range(row_groups)])
    data = pa.table({"id": ids, "wide": np.random.default_rng(1).random(len(ids)).astype(str)})
    index = build_index(local_catalog, data, rows, IndexDefinition.of(bitmap=["id"]))
    assert plan(index, keys={"id": keys}).kept == row_groups
    found = scan(index, None, ["id"], keys={"id": keys}).read_all()["id"].to_numpy()
    assert sorted(found) == sorted(ids[np.isin(ids, keys)])


@pytest.mark.parametrize(("lie", "reason"), [("everywhere", "not-worth-reading"), ("together", "rows-empty")])
def test_rows_that_lie_everywhere_meet_those_of_a_wide_test(local_catalog: SqlCatalog, lie: str, reason: str) -> None:
    row_groups, rows, users = 4, 20_000, 200
    row = np.tile(np.arange(rows), row_groups)
    user, grade = row // (rows // users), row // (rows // 10)  # no user has the grade of another tenth of the rows
    if lie == "everywhere":
        user, grade = row % users, row % 11 % 10
    data = pa.table({"user": user, "grade": grade, "wide": np.random.default_rng(1).random(len(row)).astype(str)})
    index = build_index(local_catalog, data, rows, IndexDefinition.of(bitmap=["user", "grade"]))
    assert plan(index, "user = 7 AND grade = 9").reason_counts() == {reason: row_groups}


BURST, BURSTS, USERS = 12, 1_500, 150


@pytest.fixture
def sessions(local_catalog: SqlCatalog, request: pytest.FixtureRequest) -> tuple[TableIndex, pa.Table]:
    """Each of 150 users has some ten sessions of 12 lines; an incident spans four row groups of 40."""
    chooser = np.random.default_rng(4)
    users = np.repeat(chooser.integers(0, USERS, BURSTS), BURST)
    lines = np.arange(len(users))
    data = pa.table(
        {
            "user": pa.array(np.char.mod("u%05d", users * 31).astype(object), pa.string()),
            "status": pa.array(np.where((lines // 900) == 7, 500, 200), pa.int32()),
            "grade": pa.array(chooser.integers(0, 3, len(users)), pa.int32()),
            "row_group": pa.array(lines // 450, pa.int32()),
        }
    )
    options = {"user.layout": request.param} if request.param == "postings" else None
    kinds = {"bitmap": ["user", "status", "grade"]} if options else {request.param: ["user", "status", "grade"]}
    return build_index(local_catalog, data, 450, IndexDefinition.of(options=options, **kinds)), data


@pytest.mark.parametrize("sessions", ["bsi"], indirect=True)
def test_what_plans_found_corrects_the_next_estimates(sessions: tuple[TableIndex, pa.Table]) -> None:
    view = plan_scan(sessions[0], "user = 'u00310'").scan.view
    assert view.experience.corrected(Leaf(1, SetTest((b"u04340",)), "string"), np.full(1, 0.5))[0] < 0.4


def test_experience_leaves_what_is_proved_and_is_never_too_sure() -> None:
    experience, leaf = Experience(), Leaf(1, SetTest((1,)), "long")
    estimated = np.array([0.1, 0.5, 0.95, 1.0])
    assert experience.corrected(leaf, estimated).tolist() == estimated.tolist()
    for _ in range(20):
        experience.note(leaf, 10.0, 400)
    assert experience.corrected(leaf, estimated).tolist() == [0.9, 0.9, 0.95, 1.0]
    assert experience.corrected(Leaf(2, SetTest((1,)), "long"), estimated).tolist() == estimated.tolist()
    for _ in range(40):
        experience.note(leaf, 400.0, 0)
    assert (experience.corrected(leaf, estimated)[:3] < 0.05).all()
