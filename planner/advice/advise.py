"""The advisor: which indexes a workload is worth under a budget of bytes."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from pyiceberg.io import load_file_io
from pyiceberg.table import Table

from planner.advice.advice_answer import Advice, AdvisedIndex, create_index
from planner.advice.advised_table import AdvisedTable, Scanned
from planner.advice.candidates import find_candidates, names_of
from planner.advice.gains import Gains, choose, without_idle
from planner.advice.sample import AdviceListener, AdviceProgress, IndexSample, built_sample, choose as choose_row_groups
from planner.advice.workload import Workload, condensed, read_query_log
from planner.condition.tree.nodes import EVERY_ROW
from puffin_index.definition.index_definition import IndexDefinition, IndexedColumn, unite
from puffin_index.display import show_live
from puffin_index.errors import DefinitionError, MissingExtraError
from puffin_index.jobs.log_lines import log_line
from puffin_index.keys.map_key import FieldKind
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.table_index import TableIndex

DEFAULT_MAX_SHARE: Final = 0.3
"""All indexes together may take this share of the data's bytes."""

DEFAULT_ADVICE_SAMPLE: Final = 32
"""Row groups. Every candidate is built over all of them, so they are fewer than for one question."""

_LEAST_SHARE = 0.01
"""A choice that saves less of what the workload reads is not proposed."""
_QUERIES_NAMED = 3

_log = logging.getLogger(__name__)


def advise(
    index_or_table: TableIndex | Table,
    queries: str | Sequence[str] | None = None,
    *,
    query_log: str | None = None,
    max_share: float = DEFAULT_MAX_SHARE,
    sample: int | None = DEFAULT_ADVICE_SAMPLE,
    create: bool = False,
    progress: AdviceListener | None = None,
) -> Advice:
    """Say which indexes a workload is worth. Candidates are measured on a sample of row groups, not guessed.

    Args:
        queries: SQL statements, in one text between semicolons or one by one; `WHERE …` alone is one, too.
        query_log: The folder of the hook's own log of queries, with literals.
        max_share: The bytes of all indexes together, as a share of the data's bytes.
        sample: The most row groups to measure; None for all.
        create: Whether to add the proposals to the definition of the table's index. Nothing is built or dropped.
        progress: Called after each step. Without it, a notebook shows the progress.

    Raises PuffinIndexError if not just one source of queries is given, or if it holds no queries at all.
    """
    if (queries is None) == (query_log is None):
        raise DefinitionError("name one source of queries: SQL statements or a query log")
    if not max_share > 0:
        raise DefinitionError(f"a budget of {max_share:g} of the data leaves room for no index")
    listener = progress if progress is not None else show_live(AdviceProgress())
    listener(AdviceProgress())
    advised = AdvisedTable.of(index_or_table)
    name = advised.table.name()
    if query_log is not None:
        workload = read_query_log(load_file_io(dict(advised.table.catalog.properties), query_log), query_log, name)
    else:
        try:
            from planner.advice.sql_statements import read_statements
        except ModuleNotFoundError as error:
            raise MissingExtraError(error.name or "sqlglot", "advice") from error

        text = queries if isinstance(queries, str) else ";\n".join(queries or ())
        workload = read_statements(text, name, [field.name for field in advised.schema.fields])
    advice = _advise_on(advised, workload, max_share, sample, listener)
    return _created(advised, advice) if create else advice


def _advise_on(
    advised: AdvisedTable, workload: Workload, max_share: float, sample: int | None, listener: AdviceListener
) -> Advice:
    """Say which indexes a workload is worth, if they may take a share of the data's bytes together."""
    served = _served(advised, workload)
    workload = condensed(workload)
    candidates = find_candidates(workload.queries, advised.schema)
    everything = advised.scanned(EVERY_ROW)
    warnings = [*workload.skipped, *candidates.skipped, *_remarks(workload)]
    names = names_of(advised.columns)
    warnings += [
        f"{names[key]}: joins, aggregates or first rows of {times:,} scans can use it, beyond what is measured here"
        for key, times in sorted(served.items())
    ]
    left = [advised.scanned(one.condition) for one in candidates.queries]
    positions = _positions(everything, left, sample)
    wanted = {column.column_id for column in candidates.columns}
    # Existing indexes keep their options.
    columns = unite([own for own in advised.columns if own.column_id in wanted], candidates.columns)
    base = Advice(
        table=f"{advised.table.catalog.name}.{advised.name}",
        snapshot_id=advised.snapshot.snapshot_id if advised.snapshot else None,
        scans=workload.scans,
        queries=len(candidates.queries),
        data_bytes=advised.data_bytes,
        budget_bytes=round(advised.data_bytes * max_share),
        sampled=len(positions),
        row_groups=len(everything),
        warnings=tuple(warnings),
    )
    if not len(positions) or not columns:
        return replace(base, indexes=_never_asked(advised, names_of(columns).keys() | served))
    with built_sample(advised, everything, positions, columns, listener) as built:
        _log.info("%s", log_line("sample indexed", columns=len(columns), rows=built.rows, seconds=built.seconds))
        gains = Gains(advised, built, everything, candidates.queries, left, listener)
        advice = _Choice(advised, names_of(columns), built, gains, base, frozenset(served)).advice()
    _log.info("%s", log_line("sets of indexes tried", plans=gains.plans))
    return advice


def _served(advised: AdvisedTable, workload: Workload) -> dict[FieldKind, int]:
    """The existing indexes that scans need in ways that no condition shows, and how many scans do."""
    names = names_of(advised.columns)
    used = Counter(workload.used)
    times = {key: used[name] + used[name.rpartition(".")[0]] for key, name in names.items()}
    return {key: count for key, count in times.items() if count}


def _remarks(workload: Workload) -> list[str]:
    remarks = []
    whole = sum(query.times for query in workload.queries if query.where is None and not query.held)
    if whole:
        remarks.append(f"{whole:,} scans have no condition on the table that an index could use")
    if workload.of_other_tables:
        remarks.append(f"{workload.of_other_tables:,} statements or scans do not concern the table")
    return remarks


def _positions(everything: Scanned, left: Sequence[Scanned], sample: int | None) -> Ints:
    """Choose row groups among those that Iceberg's own pruning leaves to one of the queries at least."""
    paths = {file.path for own in left for file in own.data_files}
    is_left: Flags = np.array([file.path in paths for file in everything.data_files], np.bool_)
    asked = np.flatnonzero(is_left[everything.file_of]) if len(everything) else np.zeros(0, np.int64)
    return np.asarray(asked[choose_row_groups(len(asked), sample or len(asked))], np.int64)


def _never_asked(advised: AdvisedTable, asked: Iterable[FieldKind]) -> tuple[AdvisedIndex, ...]:
    sizes, names = advised.index_bytes(), names_of(advised.columns)
    reason = "no query has a condition or aggregate that it could answer"
    return tuple(
        AdvisedIndex("unused", *names[key].rpartition(".")[::2], sizes.get(key), 0, 0.0, reason)
        for key in sorted(advised.defined - set(asked))
    )


@dataclass(frozen=True)
class _Choice:
    """A choice among measured candidates by name; `served` are existing indexes of use in ways not measured."""

    advised: AdvisedTable
    names: Mapping[FieldKind, str]
    built: IndexSample
    gains: Gains
    base: Advice
    served: frozenset[FieldKind]

    def advice(self) -> Advice:
        """Choose, and say why."""
        existing, total = self.advised.index_bytes(), self.gains.total_read
        sizes = {key: existing.get(key) or self.built.table_bytes([key]) for key in sorted(self.names)}
        in_use = without_idle(self.advised.defined & self.asked, sizes, self.gains.total)
        left = self.base.budget_bytes - sum(sizes[key] for key in in_use)
        open_sizes = {key: size for key, size in sizes.items() if key in self.asked - self.advised.defined}
        new = choose(open_sizes, left, lambda some: self.gains.total(some | in_use))
        if self.gains.total(new | in_use) - self.gains.total(in_use) < _LEAST_SHARE * total:
            new = frozenset()
        chosen = new | in_use
        proposals = [self._proposal(key, chosen, sizes[key]) for key in sorted(chosen)]
        others = [self._rejected(key, chosen, sizes[key], left) for key in sorted(self.asked - chosen - self.served)]
        others.sort(key=lambda own: (own.action != "unused", -own.bytes_saved))
        return replace(
            self.base,
            bytes_read=round(total),
            bytes_saved=round(self.gains.total(chosen)),
            index_bytes=sum(sizes[key] for key in chosen),
            indexes=(
                *sorted(proposals, key=lambda own: -own.bytes_saved),
                *_never_asked(self.advised, self.asked | self.served),
                *others,
            ),
            warnings=(*self.base.warnings, *(f"not indexed: {one.reason}" for one in self.built.skipped)),
        )

    @property
    def asked(self) -> frozenset[FieldKind]:
        """The indexes that a query could use."""
        return frozenset().union(*(one.candidates for one in self.gains.queries))

    def _proposal(self, key: FieldKind, chosen: frozenset[FieldKind], size: int) -> AdvisedIndex:
        is_new = key not in self.advised.defined
        saved, alone = self.gains.total(chosen) - self.gains.total(chosen - {key}), self.gains.total(frozenset({key}))
        partners = self._partners(key, chosen)
        if saved <= _LEAST_SHARE * self.gains.total_read and not is_new:
            reason = "once the proposals are built, they do its work, and it can be dropped"
        elif partners and alone < saved / 2:
            reason = f"helps only together with {', '.join(partners)}"
        else:
            reason = self._queries_helped(key, chosen)
        proposal = self._index("create" if is_new else "keep", key, size, saved, reason)
        if not is_new:
            return proposal
        seconds = self.built.seconds * self.built.growth / len(self.names)
        statement = create_index(self.base.table, proposal.column, proposal.kind)
        return replace(proposal, build_seconds=seconds, statement=statement)

    def _index(self, action: str, key: FieldKind, size: int, saved: float, reason: str) -> AdvisedIndex:
        column, _, kind = self.names[key].rpartition(".")
        return AdvisedIndex(action, column, kind, size, round(saved), self._share(saved), reason)

    def _share(self, saved: float) -> float:
        return saved / self.gains.total_read if self.gains.total_read else 0.0

    def _partners(self, key: FieldKind, chosen: frozenset[FieldKind]) -> list[str]:
        """Return the other proposals that queries with this one could use."""
        near = frozenset().union(*(one.candidates for one in self.gains.queries if key in one.candidates))
        return sorted(self.names[other] for other in (near & chosen) - {key})

    def _queries_helped(self, key: FieldKind, chosen: frozenset[FieldKind]) -> str:
        """Name the queries that save most by an index, beside the other proposals."""
        saved = {
            f"{one.query.times} x WHERE {one.query.where}": self.gains.of_query(number, chosen)
            - self.gains.of_query(number, chosen - {key})
            for number, one in enumerate(self.gains.queries)
            if key in one.candidates
        }
        best = sorted((text for text in saved if saved[text] > 0), key=lambda text: -saved[text])
        return "; ".join(best[:_QUERIES_NAMED])

    def _rejected(self, key: FieldKind, chosen: frozenset[FieldKind], size: int, budget_left: float) -> AdvisedIndex:
        alone = self.gains.total(frozenset({key}))
        more = self.gains.total(chosen | {key}) - self.gains.total(chosen)
        least = _LEAST_SHARE * self.gains.total_read
        if more < least:
            reason = "by itself it saves next to nothing" if alone < least else "the other indexes do its work"
        elif size > budget_left:
            reason = f"it would save {self._share(more):.0%} more, but is larger than the budget"
        else:
            reason = f"it would save {self._share(more):.0%} more, but others use the budget better"
        action = "unused" if key in self.advised.defined else "do not build"
        return self._index(action, key, size, alone, reason)


def _created(advised: AdvisedTable, advice: Advice) -> Advice:
    """Add the proposals to the definition of the table's index."""
    new = [own for own in advice.indexes if own.action == "create"]
    if not new:
        return advice
    kinds: dict[str, dict[str, dict[str, str]]] = {}
    for own in new:
        kinds.setdefault(own.column, {})[own.kind] = {}
    definition = IndexDefinition(tuple(IndexedColumn(name, own) for name, own in kinds.items()))
    if advised.index is None:
        TableIndex.create(advised.table.catalog, advised.name, definition)
    else:
        advised.index.add_kinds(definition)
    return replace(advice, created=True)
