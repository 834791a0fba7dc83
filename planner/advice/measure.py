"""Measuring a what-if: on all row groups if indexes are only left out, on a sample if some are added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from planner.advice.advised_table import AdvisedTable, Scanned
from planner.advice.candidates import columns_of, find_named, keys_of, names_of, remaining
from planner.advice.sample import built_sample, choose
from planner.advice.verdict import (
    SMALL_ROW_GROUP_ROWS,
    Range,
    Verdict,
    note_on_row_groups,
    range_of,
    verdict_on_hidden,
    verdict_on_new,
)
from planner.condition.tree.nodes import EVERY_ROW, Predicate
from puffin_index.definition.index_definition import IndexDefinition, ResolvedColumn, resolve
from puffin_index.definition.table_properties import unite
from puffin_index.errors import DefinitionError
from puffin_index.segments.directory import FieldKind
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True)
class Question:
    """The indexes that a what-if adds and leaves out.

    Attributes:
        condition: The WHERE.
        added: The indexes to add, those that the table has already left out.
        existing: The indexes to add that the table has already, as `column.kind`.
        hidden: The existing indexes to leave out.
        hidden_names: The same as `column.kind`.
    """

    condition: Predicate
    added: tuple[ResolvedColumn, ...]
    existing: tuple[str, ...]
    hidden: frozenset[FieldKind]
    hidden_names: tuple[str, ...]

    @classmethod
    def of(
        cls,
        advised: AdvisedTable,
        condition: Predicate,
        definition: IndexDefinition | Mapping[str, Iterable[str]] | None,
        left_out: Sequence[str],
    ) -> Self:
        """Check a question against a table.

        Raises:
            DefinitionError: If a kind does not fit its column, the table lacks an index to leave out, or nothing is
                asked.
        """
        if definition is None and not left_out:
            raise DefinitionError("name the indexes to add, or existing ones to leave out")
        hidden = find_named(left_out, advised.columns)
        if isinstance(definition, Mapping):
            definition = IndexDefinition.of(options=None, **definition)
        wanted = resolve(definition, advised.schema) if definition is not None else ()
        there = advised.defined - hidden
        existing = tuple(name for key, name in names_of(wanted).items() if key in there)
        names = names_of(advised.columns)
        hidden_names = tuple(sorted(names[key] for key in hidden))
        return cls(condition, remaining(wanted, there), existing, hidden, hidden_names)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found.

    Attributes:
        kept: The row groups that the query would read.
        kept_share: Their share of the bytes of all row groups that Iceberg's own pruning leaves.
        sampled: The row groups that were measured.
        index_bytes: About the bytes of the added indexes, less those of the indexes that are left out.
        build_seconds: About the seconds that one core takes to build the added indexes.
        verdict: Whether that is worth while.
        warnings: What else to know, as sentences.
    """

    kept: Range
    kept_share: float
    sampled: int
    index_bytes: int
    build_seconds: float
    verdict: Verdict
    warnings: tuple[str, ...] = ()


def measure(
    advised: AdvisedTable, question: Question, scanned: Scanned, kept_today: Flags, sample: int | None
) -> Measured:
    """Measure what a query would read.

    Args:
        advised: The table.
        question: The indexes.
        scanned: The row groups that Iceberg's own pruning leaves.
        kept_today: Which of them the query reads today.
        sample: The most row groups to measure where indexes are added; None for all.
    """
    hidden_bytes = _bytes_of(advised, question.hidden)
    if not question.added:
        return _measure_hidden(advised, question, scanned, kept_today, hidden_bytes)
    if len(scanned):
        positions = choose(len(scanned), sample or len(scanned))
        return _measure_added(advised, question, scanned, kept_today, positions, hidden_bytes)
    return _measure_size(advised, question, sample, hidden_bytes)


def _measure_size(advised: AdvisedTable, question: Question, sample: int | None, hidden_bytes: int) -> Measured:
    """Measure on other row groups what indexes take that have nothing left to do."""
    everything = advised.scanned(EVERY_ROW)
    positions = choose(len(everything), sample or len(everything))
    verdict = Verdict("do not build", "Iceberg's own pruning leaves no row group to read")
    with built_sample(advised, everything, positions, question.added) as built:
        size, seconds = built.table_bytes(keys_of(question.added)), built.seconds * built.growth
    return Measured(Range.exactly(0), 0.0, 0, size - hidden_bytes, seconds, verdict)


def _measure_hidden(
    advised: AdvisedTable, question: Question, scanned: Scanned, kept_today: Flags, hidden_bytes: int
) -> Measured:
    view = advised.view.only(advised.view.built - question.hidden)
    kept = advised.plan(view, question.condition, scanned.data_files).kept_mask
    before, after = int(np.count_nonzero(kept_today)), int(np.count_nonzero(kept))
    if question.hidden:
        verdict = verdict_on_hidden(before, Range.exactly(after - before))
    else:
        verdict = Verdict("do not build", f"the table has it already: {', '.join(question.existing)}")
    share = _share(scanned, kept)
    return Measured(Range.exactly(after), share, len(scanned), -hidden_bytes, 0.0, verdict)


def _measure_added(
    advised: AdvisedTable,
    question: Question,
    scanned: Scanned,
    kept_today: Flags,
    positions: Ints,
    hidden_bytes: int,
) -> Measured:
    tested = columns_of(question.condition)
    # An index may help only together with another one, so the sample has today's indexes of the WHERE's columns, too.
    beside = tuple(own for own in remaining(advised.columns, question.hidden) if own.column_id in tested)
    columns = unite(question.added, beside)
    total, sampled = len(scanned), len(positions)
    with built_sample(advised, scanned, positions, columns) as built:
        verdicts = built.verdicts(question.condition)
        shares_left = built.shares_left(question.condition, SMALL_ROW_GROUP_ROWS)
        index_bytes = built.table_bytes(keys_of(question.added))
        # The time is shared out by rows and by the number of indexes.
        share_of_build = len(keys_of(question.added)) / len(keys_of(columns))
        seconds = built.seconds * built.growth * share_of_build
        warnings = [f"not indexed: {skipped.reason}" for skipped in built.skipped]
    today = kept_today[positions]
    saved = int(np.count_nonzero(today)) - int(np.count_nonzero(verdicts.kept))
    untested = {column.name for column in question.added if column.column_id not in tested}
    verdict = verdict_on_new(
        int(np.count_nonzero(kept_today)),
        range_of(max(0, saved), sampled, total),
        verdicts.reasons[verdicts.kept],
        any(column.column_id in tested for column in question.added),
        untested,
    )
    if question.existing:
        warnings.append(f"the table has already: {', '.join(question.existing)}")
    sizes = scanned.row_group_bytes[positions]
    if note := note_on_row_groups(sizes, today, verdicts.kept, shares_left):
        warnings.append(note)
    return Measured(
        kept=range_of(int(np.count_nonzero(verdicts.kept)), sampled, total),
        kept_share=float(sizes[verdicts.kept].sum() / max(1.0, sizes.sum())),
        sampled=sampled,
        index_bytes=index_bytes - hidden_bytes,
        build_seconds=seconds,
        verdict=verdict,
        warnings=tuple(warnings),
    )


def _share(scanned: Scanned, kept: Flags) -> float:
    return float(scanned.row_group_bytes[kept].sum() / max(1.0, scanned.row_group_bytes.sum()))


def _bytes_of(advised: AdvisedTable, indexes: frozenset[FieldKind]) -> int:
    """Return the bytes of existing indexes that belong to the current snapshot."""
    if advised.index is None or not indexes:
        return 0
    status = advised.index.status()
    return sum(
        own.live_kinds[kind]
        for own, column in zip(status.columns, advised.columns, strict=True)
        for kind in column.kinds
        if (column.field_id, column.stored_kind(kind)) in indexes
    )
