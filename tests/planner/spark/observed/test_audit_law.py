"""The laws of audits: no right index is called wrong, whatever a query asks; the second opinion is the oracle's."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from planner.condition.spark.nodes import ConditionNode
from planner.query_log.records import AuditRecord
from planner.spark.audit.direct import DirectTest
from tests.conftest import amount
from tests.planner.laws.random_tables import RandomTable, random_predicate
from tests.planner.spark.observed.hook_requests import AskedHook, column_node, condition_node, is_known

_NODES: TypeAdapter[ConditionNode] = TypeAdapter(ConditionNode)
_EVERY_AUDIT = {"audit": "1", "audit-row-groups": "1000"}
_AGGREGATED = ("i", "j", "d", "dt", "s", "f")


def _wanted(random: Random, hook: AskedHook) -> dict[str, Any]:
    order = None
    if random.random() < 0.7:
        column = column_node(random.choice(["i", "j", "d", "dt", "nt", "s"]), hook.schema)
        order = {
            "field": column["field"],
            "name": column["path"][0],
            "type": column["type"],
            "descending": random.random() < 0.5,
            "nulls_first": random.random() < 0.5,
        }
    return {"rows": random.choice([1, 2, 5, 20]), "order": order}


def _aggregates(random: Random, hook: AskedHook) -> dict[str, Any]:
    chosen = random.sample(_AGGREGATED, random.randrange(3))
    columns = [
        {
            "column": column_node(name, hook.schema),
            "sum": name in "ijd",
            "double": False,
            "least": random.random() < 0.5,
            "greatest": random.random() < 0.5,
        }
        for name in chosen
    ]
    groups = [column_node(name, hook.schema) for name in random.sample(["i", "s", "b"], random.randrange(2))]
    return {"columns": columns, "groups": groups, "text": "aggregates"}


@settings(max_examples=amount(3, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_a_right_index_is_never_called_wrong(seed: int) -> None:
    random = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        table = RandomTable.make(seed, Path(folder))
        hook = AskedHook(table.index, _EVERY_AUDIT)
        audits: list[AuditRecord] = []
        hook.callback.observers._auditor._report = lambda _, record: audits.append(record)
        snapshots = [one.snapshot_id for one in table.index.data_table.metadata.snapshots]
        for _ in range(6):
            node = condition_node(random_predicate(random, table), hook.schema)
            snapshot = random.choice([None, random.choice(snapshots)])
            hook.ask([node], snapshot=snapshot)
            hook.ask(random.choice([[], [node]]), snapshot=snapshot, wanted=_wanted(random, hook))
            hook.ask([node], snapshot=snapshot, aggregates=_aggregates(random, hook))
            hook.wait()
        assert [miss for audit in audits for miss in audit.misses] == []
        assert [audit.unchecked for audit in audits if audit.unchecked] == []
        table.close()


@settings(max_examples=amount(4, 80), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_the_second_opinion_is_that_of_the_oracle(seed: int) -> None:
    random = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        table = RandomTable.make(seed, Path(folder))
        schema = table.index.data_table.schema()
        for append in table.appends.values():
            data = append.to_arrow(random)

            def read_column(field_id: int, data: pa.Table = data) -> pa.ChunkedArray:
                *parents, name = (schema.find_column_name(field_id) or "").split(".")
                return pc.struct_field(data[parents[0]], name) if parents else data[name]

            for _ in range(10):
                predicate = random_predicate(random, table)
                node = condition_node(predicate, schema)
                conditions = (_NODES.validate_python(node),)
                found = DirectTest((), conditions, schema).certain(read_column, append.count)
                truths = append.truths(predicate) == 1
                assert not (found & ~truths).any(), (predicate, found, truths)
                if is_known(node):
                    assert (found == truths).all(), (predicate, found, truths)
        table.close()
