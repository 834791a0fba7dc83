"""What-if: say what a WHERE would read with other indexes, before anybody builds or drops one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from pyiceberg.table import Table

from planner.advice.advised_table import AdvisedTable
from planner.advice.asked import names_of
from planner.advice.interval import Range
from planner.advice.measure import Question, measure
from planner.advice.sample import DEFAULT_SAMPLE
from planner.advice.what_if_answer import DEFAULT_BYTES_PER_SECOND, Reads, WhatIf
from planner.condition.sql.parser import read_where
from puffin_index.definition.fit import fit_warnings
from puffin_index.definition.index_definition import IndexDefinition
from puffin_index.table_index import TableIndex


def what_if(
    index_or_table: TableIndex | Table,
    where: str,
    definition: IndexDefinition | Mapping[str, Iterable[str]] | None = None,
    *,
    without: Sequence[str] = (),
    sample: int | None = DEFAULT_SAMPLE,
    snapshot_id: int | None = None,
    bytes_per_second: float = DEFAULT_BYTES_PER_SECOND,
) -> WhatIf:
    """Say what a WHERE would read if indexes were added to a table, or left out. Nothing is changed.

    The ordinary build makes the indexes in a temporary folder, of a sample of the row groups that Iceberg's own pruning
    leaves, and the ordinary planner reads them.

    Args:
        index_or_table: The table, whether it has an index or not.
        where: SQL WHERE text.
        definition: The indexes to add: a definition, or columns by kind such as `{"bitmap": ["a"]}`.
        without: The existing indexes to leave out, as `column.kind`.
        sample: The most row groups to measure; None for all.
        snapshot_id: The snapshot, None for the current one.
        bytes_per_second: The reading speed of one core, by which bytes become seconds.

    Raises:
        WhereSyntaxError: If the text does not parse.
        NotFoundError: If the text names a column that the table lacks, or there is no such snapshot.
        DefinitionError: If a kind does not fit its column, the table lacks an index to leave out, or nothing is asked.
    """
    advised = AdvisedTable.of(index_or_table, snapshot_id)
    condition = read_where(where, advised.schema)
    question = Question.of(advised, condition, definition, without)
    scanned = advised.scanned(condition)
    kept_today = advised.plan(advised.view, condition, scanned.data_files).kept_mask
    measured = measure(advised, question, scanned, kept_today, sample)
    row_group_bytes = scanned.row_group_bytes

    def reads(state: str, row_groups: Range, size: float) -> Reads:
        return Reads(state, row_groups, round(size), size / bytes_per_second)

    kept_now = Range.exactly(int(np.count_nonzero(kept_today)))
    whole = float(row_group_bytes.sum())
    return WhatIf(
        table=advised.name,
        snapshot_id=advised.snapshot.snapshot_id if advised.snapshot else None,
        where=where,
        added=tuple(names_of(question.added).values()),
        left_out=question.hidden_names,
        row_groups=sum(max(1, len(own.file.split_offsets)) for own in advised.files),
        without_index=reads("without index", Range.exactly(len(scanned)), whole),
        today=reads("today", kept_now, float(row_group_bytes[kept_today].sum())),
        what_if=reads("what if", measured.kept, measured.kept_share * whole),
        sampled=measured.sampled,
        index_bytes=measured.index_bytes,
        data_bytes=advised.data_bytes,
        build_seconds=measured.build_seconds,
        verdict=measured.verdict,
        bytes_per_second=bytes_per_second,
        warnings=(*fit_warnings(question.added), *measured.warnings),
    )
