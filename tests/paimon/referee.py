"""Paimon's file index writers and readers, called from Python through JPype."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jpype
from pyroaring import BitMap

from puffin_index.formats.paimon_container import write_container
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import value_of
from ssb_bench.spark_runs.jars import PAIMON, SPARK_JARS, local_jars

INDEX_NAMES = {"bitmap": "bitmap", "bsi": "bsi", "bloom": "bloom-filter"}
_COLUMN = "c"

# Java's objects and classes have no types in Python.
Java: TypeAlias = Any


@dataclass(frozen=True)
class Paimon:
    """The classes that are needed, and how a type's values are made from Python's."""

    types: Mapping[str, Java]
    make: Mapping[str, Callable[[Any], Java]]

    def write(self, kind: str, type_name: str, values: Sequence[Any], options: Mapping[str, str]) -> bytes:
        """The blob that Paimon's writer makes of a column."""
        java_options = jpype.JClass("org.apache.paimon.options.Options")()
        for key, value in options.items():
            java_options.set(key, value)
        indexer = jpype.JClass("org.apache.paimon.fileindex.FileIndexer")
        writer = indexer.create(INDEX_NAMES[kind], self.types[type_name], java_options).createWriter()
        make = self.make[type_name]
        for value in values:
            writer.writeRecord(None if value is None else make(value))
        return bytes(writer.serializedBytes())

    def rows(self, kind: str, type_name: str, blob: bytes, test: LeafTest) -> BitMap | bool:
        """The rows that Paimon's reader finds for a test; whether there may be any, if it does not tell more."""
        found = self.rows_in(write_container({_COLUMN: {INDEX_NAMES[kind]: blob}}), _COLUMN, type_name, test)
        # An empty bitmap may be told as "skip".
        return found and kind == "bloom" if isinstance(found, bool) else found

    def rows_in(self, container: bytes, column: str, type_name: str, test: LeafTest) -> BitMap | bool:
        """The same of all indexes that a column has in a container."""
        row_type = jpype.JClass("org.apache.paimon.types.RowType")
        fields = row_type.of(
            jpype.JArray(jpype.JClass("org.apache.paimon.types.DataType"))([self.types[type_name]]), [column]
        )
        stream = jpype.JClass("org.apache.paimon.fs.ByteArraySeekableStream")(jpype.JArray(jpype.JByte)(container))
        predicate = jpype.JClass("org.apache.paimon.fileindex.FileIndexPredicate")(stream, fields)
        builder = jpype.JClass("org.apache.paimon.predicate.PredicateBuilder")(fields)
        result = predicate.evaluate(self._predicate(builder, type_name, test))
        if not hasattr(result, "get"):
            return bool(result.remain())
        iterator, found = result.get().iterator(), BitMap()
        while iterator.hasNext():
            found.add(int(iterator.next()))
        return found

    def _predicate(self, builder: Java, type_name: str, test: LeafTest) -> Java:
        value_type, make = value_type_named(type_name), self.make[type_name]
        match test:
            case NullTest(is_null=True):
                return builder.isNull(0)
            case NullTest():
                return builder.isNotNull(0)
            case SetTest():
                values = jpype.JClass("java.util.ArrayList")()
                for key in test.keys:
                    values.add(make(value_of(key, value_type)))
                return builder.notIn(0, values) if test.negated else builder.in_(0, values)
            case RangeTest(low=None, high=high) if high is not None:
                compare = builder.lessOrEqual if test.high_inclusive else builder.lessThan
                return compare(0, make(value_of(high, value_type)))
            case RangeTest(low=low, high=None) if low is not None:
                compare = builder.greaterOrEqual if test.low_inclusive else builder.greaterThan
                return compare(0, make(value_of(low, value_type)))
            case _:
                raise AssertionError(f"Paimon has no such test: {test}")


def _classpath() -> list[str]:
    """Give Paimon's bundle, and the archives of PySpark that the bundle needs."""
    parts = [path for name in ("slf4j-api-*.jar", "hadoop-client-*.jar") for path in SPARK_JARS.glob(name)]
    return [str(path) for path in (*local_jars(PAIMON), *sorted(parts))]


def start_paimon() -> Paimon:
    if not jpype.isJVMStarted():
        jpype.startJVM("-Xmx1g", classpath=_classpath(), convertStrings=False)
    types = jpype.JClass("org.apache.paimon.types.DataTypes")
    strings = jpype.JClass("org.apache.paimon.data.BinaryString")
    decimals = jpype.JClass("org.apache.paimon.data.Decimal")
    stamps = jpype.JClass("org.apache.paimon.data.Timestamp")

    def timestamp(value: Any) -> Java:
        return stamps.fromMicros(_micros(value))

    return Paimon(
        {
            "boolean": types.BOOLEAN(),
            "int": types.INT(),
            "long": types.BIGINT(),
            "float": types.FLOAT(),
            "double": types.DOUBLE(),
            "date": types.DATE(),
            "timestamp": types.TIMESTAMP(6),
            "timestamptz": types.TIMESTAMP_WITH_LOCAL_TIME_ZONE(6),
            "decimal(9,2)": types.DECIMAL(9, 2),
            "string": types.STRING(),
            "binary": types.BYTES(),
        },
        {
            "boolean": jpype.JClass("java.lang.Boolean"),
            "int": jpype.JClass("java.lang.Integer"),
            "long": jpype.JClass("java.lang.Long"),
            "float": lambda value: jpype.JClass("java.lang.Float")(jpype.JFloat(value)),
            "double": jpype.JClass("java.lang.Double"),
            "date": lambda value: jpype.JClass("java.lang.Integer")(_days(value)),
            "timestamp": timestamp,
            "timestamptz": timestamp,
            "decimal(9,2)": lambda value: decimals.fromUnscaledLong(int(value.scaleb(2)), 9, 2),
            "string": lambda value: strings.fromBytes(jpype.JArray(jpype.JByte)(value.encode())),
            "binary": jpype.JArray(jpype.JByte),
        },
    )


def _days(value: Any) -> int:
    return value if isinstance(value, int) else value.toordinal() - 719_163


def _micros(value: Any) -> int:
    if isinstance(value, int):
        return value
    naive = value.replace(tzinfo=None)
    seconds = (_days(naive.date()) * 24 + naive.hour) * 3600 + naive.minute * 60 + naive.second
    return int(seconds * 1_000_000 + naive.microsecond)
