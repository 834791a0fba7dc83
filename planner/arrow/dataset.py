"""A table as a dataset of Arrow's: DuckDB, Polars, DataFusion and pandas read it, and the planner drops row groups.

Engines ask for columns and a filter. The filter becomes a condition of the planner; where the condition says less than
the filter, Arrow's own filter tests the rows that are read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, Final, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from planner.arrow.aggregate import aggregate_with_plan
from planner.arrow.arrow_scan import READ_LIMITS, any_rows, batches_of, project
from planner.arrow.plan import plan_scan, snapshot_of
from planner.arrow.row_group_columns import DataRead
from planner.condition.arrow.read import ReadExpression, read_expression
from planner.condition.rows import Residual
from planner.condition.tree.nodes import EVERY_ROW
from planner.condition.tree.simplify import simplified
from planner.query import QueryAnswer
from planner.report.scan_plan import ScanPlan
from puffin_index.errors import UnsupportedError
from puffin_index.table_index import TableIndex

_BATCH_ROWS: Final = 131_072
"""Arrow's own default."""

_REFUSAL: Final = "a dataset with an index does not do this: read `to_table()`, or ask an engine"

_NO_FILTER: Final = ReadExpression(EVERY_ROW, "true", frozenset())

Columns: TypeAlias = Sequence[str] | Mapping[str, pc.Expression] | None
"""Names of columns, or expressions by the names of their results; None for all columns."""


def dataset(index: TableIndex, snapshot_id: int | None = None, *, refresh: bool = True) -> IndexedDataset:
    """Give a table to engines that read Arrow's datasets.

    The dataset is one snapshot of the table, with the schema that it has now. It sees newer indexes of this snapshot
    once somebody refreshes `index`; for newer rows, make another dataset, which takes no time. Arguments are those of
    `planner.plan`. Raises NotFoundError if there is no such snapshot.
    """
    if refresh:
        index.refresh()
    # Refreshing an index changes its data table in place; a dataset keeps its schema and its rows.
    pinned = TableIndex(index.catalog, copy(index.data_table), index.index_table)
    return IndexedDataset(pinned, snapshot_id)


class _Unreadable(io.RawIOBase):
    """A data file that raises UnsupportedError when it is read."""

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:  # noqa: ARG002 # Python's signature
        raise UnsupportedError(_REFUSAL)


class IndexedDataset(ds.UnionDataset):  # type: ignore[misc] # pyarrow has no types
    """One snapshot of a table, made by `planner.dataset`; scans give rows by data file and row group."""

    def __init__(self, index: TableIndex, snapshot_id: int | None, condition: pc.Expression | None = None) -> None:
        self.index = index
        self.snapshot_id = snapshot_id
        self.table_schema = snapshot_of(index.data_table, snapshot_id)[1]
        self._condition = condition
        # Arrow's own functions do not ask the methods of this class. They find one file, which cannot be read.
        parquet, schema = ds.ParquetFileFormat(), self.schema
        super().__init__(schema, [ds.FileSystemDataset([parquet.make_fragment(_Unreadable())], schema, parquet)])

    @property
    def schema(self) -> pa.Schema:
        """The table's Arrow schema."""
        return _arrow_schema(self.table_schema)

    @property
    def partition_expression(self) -> pc.Expression:
        """What holds for all rows: nothing is known."""
        return pc.scalar(True)

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,  # noqa: A002 # Arrow's name
        batch_size: int = _BATCH_ROWS,
        **tuning: Any,
    ) -> IndexedScanner:
        """Make a scan, which is planned when somebody first asks it for rows.

        Record batches have at most `batch_size` rows, for which `filter` is true. Arguments that tune Arrow's own
        readers, such as `batch_readahead`, change nothing. Raises pa.ArrowException if arguments do not fit, TypeError
        if they are of the wrong type, or Arrow's scanners have no such argument.
        """
        condition = self._condition if filter is None else self._and(filter)
        return IndexedScanner(self, columns, condition, batch_size, tuning)

    def to_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Read record batches; arguments are those of `scanner`."""
        return self.scanner(*args, **options).to_batches()

    def to_table(self, *args: Any, **options: Any) -> pa.Table:
        """Read a table; arguments are those of `scanner`."""
        return self.scanner(*args, **options).to_table()

    def head(self, num_rows: int, *args: Any, **options: Any) -> pa.Table:
        """Read the first rows; the other arguments are those of `scanner`."""
        return self.scanner(*args, **options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:  # noqa: A002 # Arrow's name
        """Count rows, by indexes where they know how many match."""
        return self.scanner(columns=[], filter=filter, **options).count_rows()

    def filter(self, expression: pc.Expression) -> IndexedDataset:
        """Make a dataset of the rows for which an expression is true."""
        return IndexedDataset(self.index, self.snapshot_id, self._and(expression))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[IndexedFragment]:  # noqa: A002, ARG002 # Arrow's name; no fragment is left out
        """Give the whole dataset as one fragment, whose scans are planned and read in parallel."""
        yield IndexedFragment(self.index, self.snapshot_id, self._condition)

    _get_fragments = get_fragments

    def _and(self, expression: pc.Expression) -> pc.Expression:
        return expression if self._condition is None else self._condition & expression

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give all rows as a stream of Arrow's C interface."""
        return self.scanner().__arrow_c_stream__(requested_schema)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise UnsupportedError(_REFUSAL)

    take = join = join_asof = sort_by = replace_schema = _scanner_options = _scan_options = __reduce__ = _refuse


class IndexedFragment(IndexedDataset):
    """A dataset as its only fragment. As of any fragment, the first argument of a scan is the schema: its own."""

    @property
    def physical_schema(self) -> pa.Schema:
        """The schema."""
        return self.schema

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> IndexedScanner:  # type: ignore[override] # noqa: ARG002 # Arrow's signature
        """Make a scan; the other arguments are those of a dataset's `scanner`."""
        return super().scanner(**options)


@dataclass(eq=False, repr=False)
class IndexedScanner:
    """A scan of a dataset, which may be read more than once, with the methods of Arrow's; `data_read` counts."""

    _dataset: IndexedDataset
    _columns: Columns
    _condition: pc.Expression | None
    _batch_size: int
    tuning: InitVar[Mapping[str, Any]]
    data_read: DataRead = field(init=False, default_factory=DataRead)

    def __post_init__(self, tuning: Mapping[str, Any]) -> None:
        """Let Arrow check the arguments, and say of which types the results are."""
        rows, condition = self.dataset_schema.empty_table(), self._condition
        self._like = self._by_arrow(rows, condition, batch_size=self._batch_size, **tuning)
        self._schema = self._dataset.table_schema
        self._read = _NO_FILTER if condition is None else read_expression(condition, self._schema)

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of the dataset."""
        return self._dataset.schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self._like.projected_schema

    @property
    def plan(self) -> ScanPlan:
        """What the scan has to read."""
        return self._planned.plan

    def to_reader(self) -> pa.RecordBatchReader:
        """Read record batches one after the other; some row groups are read ahead."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """Read record batches, of at most `batch_size` rows; if a limit is given, those that may have so many rows.

        Plans now and reads row groups later: Arrow may ask for batches in the one thread that planning needs.
        """
        names = self._names()
        if not names:
            return self._without_columns(self.count_rows())
        # The planner counts what its condition finds, and the filter may leave fewer rows.
        planned = self._planned if limit is None or not self._read.exact else self._plan(limit)
        return self._rows_of(planned, names)

    def scan_batches(self) -> NoReturn:
        """Refuse: batches come without the fragments from which they are."""
        raise UnsupportedError("a scan by an index gives batches without fragments: use to_batches")

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give the rows as a stream of Arrow's C interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """Read all rows."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """Read the first rows; row groups behind them are not read."""
        batches = any_rows(self.to_batches(max(0, num_rows)), num_rows)
        return pa.Table.from_batches(batches, self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Read all rows, and choose some by position."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """Count rows, by indexes where they know how many match."""
        if not self._read.exact:
            return sum(batch.num_rows for batch in self.to_batches())
        own = self._dataset
        counted = aggregate_with_plan(own.index, self._read, "count(*)", (), own.snapshot_id, refresh=False)
        return int(counted.table.column(0)[0].as_py())

    @cached_property
    def _planned(self) -> QueryAnswer:
        return self._plan(None)

    def _plan(self, limit: int | None) -> QueryAnswer:
        own = self._dataset
        return plan_scan(own.index, self._read, own.snapshot_id, READ_LIMITS, refresh=False, limit=limit)

    def _rows_of(self, planned: QueryAnswer, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        projection = project(self._schema, names)
        residual = None if self._read.predicate == EVERY_ROW else Residual(simplified(self._read.predicate))
        condition = None if self._read.exact else self._condition
        is_done = condition is None and self.projected_schema.equals(_arrow_schema(projection))
        for batch in batches_of(self._dataset.index, planned, projection, self.data_read, residual):
            parts = [batch] if is_done else self._by_arrow(pa.Table.from_batches([batch]), condition).to_batches()
            for part in parts:
                for first in range(0, part.num_rows, self._batch_size):
                    yield part.slice(first, self._batch_size)

    def _without_columns(self, left: int) -> Iterator[pa.RecordBatch]:
        while left > 0:
            rows = pa.table({"": pa.nulls(min(left, self._batch_size))}).select([])
            yield from self._by_arrow(rows, None).to_batches()
            left -= rows.num_rows

    def _by_arrow(
        self, rows: pa.Table, condition: pc.Expression | None, *, use_threads: bool = False, **tuning: Any
    ) -> ds.Scanner:
        data = ds.InMemoryDataset(rows)
        return data.scanner(columns=self._columns, filter=condition, use_threads=use_threads, **tuning)

    def _names(self) -> list[str]:
        """The columns that are read: those of the results, and of a filter that Arrow has to test."""
        every, wanted = self._columns, [frozenset[str]() if self._read.exact else self._read.columns]
        if isinstance(every, Mapping):
            wanted += [read_expression(one, self._schema).columns for one in every.values()]
        elif every is not None:
            wanted += [frozenset([name]) for name in every]
        known: list[str] = self.dataset_schema.names
        names = [name for some in wanted if some is not None for name in some]
        if every is None or None in wanted or not set(names) <= set(known):
            return known
        return sorted(set(names), key=known.index)


def _arrow_schema(schema: Schema) -> pa.Schema:
    return schema_to_pyarrow(schema, include_field_ids=False)
