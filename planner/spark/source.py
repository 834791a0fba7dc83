"""A Python data source for Spark sessions without py4j (Spark Connect): the table's rows from surviving row groups.

Spark runs the source on the server, in workers. The catalog is PyIceberg's, configured on the server or in options.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pydantic import Field, ValidationError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyspark.errors import PySparkTypeError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from planner.arrow.arrow_scan import in_order, project, residual_of
from planner.arrow.plan import plan_scan, snapshot_of
from planner.arrow.row_group_reader import RowGroupReader, RowGroupTask, tasks_of
from planner.condition.rows import Residual
from planner.condition.session_time import DEFAULT_ZONE
from planner.spark.settings import PlanningBounds
from puffin_index.errors import UnsupportedError
from puffin_index.index_table.open_catalog import open_catalog, split_catalog
from puffin_index.keys.arrow_keys import texts_of_uuids
from puffin_index.table_index import TableIndex

_log = logging.getLogger(__name__)

_CATALOG = "catalog."
_PARTITION_BYTES = 256 << 20
"""How much memory the row groups of one task may take; a single row group may take more."""

_BATCH_ROWS = 16_384


class SourceOptions(PlanningBounds):
    """The options of a read; docs/planner.md (Spark Connect) describes each. Spark's own filters are not used."""

    path: str
    columns: str = ""
    where: str | None = None
    snapshot_id: int | None = None
    strict: bool = False
    session_zone: str = DEFAULT_ZONE
    catalog: dict[str, str] = Field(default={}, repr=False)

    def open(self) -> TableIndex:
        """Open the index of the table."""
        catalog, name = split_catalog(self.path)
        return TableIndex.open(open_catalog(catalog, self.catalog), name)

    def projection(self, schema: Schema) -> Schema:
        """The chosen columns of a schema."""
        names = [name.strip() for name in self.columns.split(",") if name.strip()]
        return project(schema, names or None)


def read_options(options: Mapping[str, str]) -> SourceOptions:
    """Read Spark's options, whose names may be in upper or lower case.

    Raises UnsupportedError if there is no such option, or an option does not take its value.
    """
    lowered = {key.lower(): value for key, value in options.items()}
    catalog = {key.removeprefix(_CATALOG): value for key, value in lowered.items() if key.startswith(_CATALOG)}
    given = {key: value for key, value in lowered.items() if not key.startswith(_CATALOG)}
    try:
        return SourceOptions.model_validate({**given, "catalog": catalog})
    except ValidationError as error:
        first = error.errors()[0]
        bounds = PlanningBounds.names()
        own = [name for name in SourceOptions.names() if name not in (*bounds, "catalog")]
        known = ", ".join([*own, *bounds, f"{_CATALOG}<property>"])
        raise UnsupportedError(f"option {first['loc'][0]} of puffin-index: {first['msg']}; there are {known}") from None


def spark_schema(schema: Schema) -> StructType:
    """An Iceberg schema as Spark's.

    Raises UnsupportedError if a column has a type that Spark does not take from Python.
    """
    return StructType([_spark_field(field) for field in schema_to_pyarrow(schema, include_field_ids=False)])


def _spark_field(field: pa.Field) -> StructField:
    if isinstance(field.type, pa.UuidType):
        # As Spark has them of Iceberg's own source.
        return StructField(field.name, StringType(), field.nullable)
    try:
        return StructField(field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True), field.nullable)
    except PySparkTypeError as error:
        raise UnsupportedError(
            f"column {field.name} is {field.type}, which a Python data source cannot give to Spark: "
            "name the other columns in the option `columns`"
        ) from error


class PuffinIndexSource(DataSource):
    """`spark.dataSource.register(PuffinIndexSource)`, then `spark.read.format("puffin-index").load("cat.ns.table")`."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return "puffin-index"

    def schema(self) -> StructType:
        """The schema of the chosen columns."""
        options = read_options(self.options)
        table = options.open().data_table
        return spark_schema(options.projection(snapshot_of(table, options.snapshot_id)[1]))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan and read a scan."""
        options = read_options(self.options)
        return _Reader(options, tuple(schema.fieldNames()))


@dataclass(frozen=True, slots=True)
class _Scan:
    """The part of a scan that all its tasks share: the table's metadata and FileIO, schemas, and predicate if any."""

    metadata: str
    io_properties: tuple[tuple[str, str], ...]
    schema: Schema
    projection: Schema
    residual: Residual | None


class _Partition(InputPartition):
    """Row groups that one task reads."""

    def __init__(self, scan: _Scan, tasks: Sequence[RowGroupTask]) -> None:
        super().__init__(None)
        self.scan = scan
        self.tasks = tasks

    def __repr__(self) -> str:
        return f"{len(self.tasks)} row groups"


class _Reader(DataSourceReader):
    """Spark calls `partitions` on the driver and pickles the partitions; executors call `read`."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the scan; surviving row groups become partitions."""
        options = self._options
        index = options.open()
        planned = plan_scan(
            index,
            options.where,
            options.snapshot_id,
            options.limits(strict=options.strict),
            session_zone=options.session_zone,
        )
        plan, table = planned.plan, index.data_table
        _log.info("%s: %d of %d row groups kept", plan.table, plan.kept, plan.row_groups)
        for unused in plan.unused:
            _log.info("%s: not used: %s", plan.table, unused)
        scan = _Scan(
            table.metadata_location,
            tuple(sorted((key, str(value)) for key, value in table.io.properties.items())),
            planned.request.schema,
            Schema(*(planned.request.schema.find_field(name) for name in self._columns)),
            residual_of(planned),
        )
        tasks = tasks_of(planned, table, np.flatnonzero(plan.kept_mask))
        return [_Partition(scan, run) for run in _runs(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition."""
        # Spark makes a partition of its own for a scan without partitions.
        if not isinstance(partition, _Partition):
            return iter(())
        return _read(partition.scan, partition.tasks)


def _runs(tasks: Iterable[RowGroupTask]) -> Iterator[list[RowGroupTask]]:
    run: list[RowGroupTask] = []
    for task in tasks:
        if run and sum(other.memory_bytes for other in run) + task.memory_bytes > _PARTITION_BYTES:
            yield run
            run = []
        run.append(task)
    if run:
        yield run


@lru_cache(maxsize=16)
def _table(metadata: str, io_properties: tuple[tuple[str, str], ...]) -> StaticTable:
    return StaticTable.from_metadata(metadata, dict(io_properties))


def _read(scan: _Scan, tasks: Sequence[RowGroupTask]) -> Iterator[pa.RecordBatch]:
    reader = RowGroupReader(_table(scan.metadata, scan.io_properties), scan.schema, scan.residual)
    read_as = schema_to_pyarrow(scan.projection, include_field_ids=False)
    target = to_arrow_schema(spark_schema(scan.projection))
    for batches in in_order(lambda task: reader.read(task, scan.projection, read_as), tasks):
        for batch in batches:
            shown = pa.RecordBatch.from_arrays(
                [texts_of_uuids(each) if isinstance(each.type, pa.UuidType) else each for each in batch.columns],
                batch.schema.names,
            )
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield shown.slice(start, _BATCH_ROWS).cast(target)
