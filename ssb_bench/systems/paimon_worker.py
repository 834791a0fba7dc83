"""Paimon: the same rows in an append table with its file index, written and read through its Java API in this process.

The table is made once, with a file for at most a million rows of a source file, and a record of what making it took.
Paimon's reader gives the rows that file index and Parquet's statistics leave; this worker tests them again, in Java.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

from ssb_bench.systems.protocol import Json, Worker, make_once, serve

# Java's objects and classes have no types in Python.
Java: TypeAlias = Any

_FILE_ROWS = 1_000_000
_MOST_WRITE_SECONDS = 60.0
"""A table that takes longer is given up, with what was done as the reason."""

_THREADS = 2
"""For writing and reading, as Spark has."""

_KINDS = ("bsi", "bloom-filter")
"""No bitmaps: of values that are nearly all distinct they take twice the time to write, and only Q7 gains."""

_TEST = re.compile(r"(\w+)\s*(=|<=|>=|<|>)\s*(-?\d+)")
_COMPARISONS = {"=": "equal", "<": "lessThan", "<=": "lessOrEqual", ">": "greaterThan", ">=": "greaterOrEqual"}
_LOOPS = "io.puffinindex.bench.PaimonLoops"


class PaimonWorker(Worker):
    """The table, made if it is not there."""

    def __init__(self, config: Json) -> None:
        import jpype

        if not jpype.isJVMStarted():
            # Paimon makes an object of every row: this collector takes a fifth off the times.
            options = ("-XX:+UseParallelGC", f"-Xmx{config['memory']}")
            jpype.startJVM(*options, classpath=list(config["classpath"]), convertStrings=True)
        self._loops = _compile_loops()
        folder = Path(config["folder"])
        self.errors = (jpype.JException,)
        self.facts = {"version": "Paimon 1.4.2", **make_once(folder, lambda: _make(folder, config, self._loops))}
        self._table = _open_table(folder)
        self._names = [str(name) for name in self._table.rowType().getFieldNames()]

    def count(self, query: Json) -> int:
        """Count the matching rows."""
        tests = _tests_of(query["where"])
        columns = sorted({name for name, _, _ in tests}, key=self._names.index)
        return self._matches(tests, columns, None)[0]

    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows."""
        return self._matches(_tests_of(query["where"]), self._names, "lo_revenue")

    def _matches(self, tests: list[tuple[str, str, int]], columns: list[str], summed: str | None) -> tuple[int, int]:
        """Give how many rows match and the sum of a column over them."""
        row_type = self._table.rowType()
        places = [self._names.index(name) for name in columns]
        builder = _class("org.apache.paimon.table.source.ReadBuilderImpl")(self._table)
        builder.withFilter(_predicate(row_type, tests)).withProjection(places)
        splits = list(builder.newScan().plan().splits())
        left = _predicate(row_type.project(_strings(columns)), tests)
        place = columns.index(summed) if summed is not None else -1
        with ThreadPoolExecutor(_THREADS) as pool:
            found = list(
                pool.map(lambda split: self._loops.read(builder.newRead().createReader(split), left, place), splits)
            )
        rows, matches, total = (sum(int(each[number]) for each in found) for number in range(3))
        files = sum(split.dataFiles().size() for split in splits)
        self.read = {"splits": len(splits), "files": files, "rows": rows}
        return matches, total


def _class(name: str) -> Java:
    import jpype

    return jpype.JClass(name)


def _strings(texts: list[str]) -> Java:
    return _class("java.util.Arrays").asList(texts)


def _compile_loops() -> Java:
    """Compile the Java source beside this module with the Janino that Paimon carries."""
    compiler = _class("org.apache.paimon.shade.org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(_class("java.lang.ClassLoader").getSystemClassLoader())
    compiler.cook(Path(__file__).with_name("PaimonLoops.java").read_text(encoding="utf-8"))
    import jpype

    return jpype.JClass(compiler.getClassLoader().loadClass(_LOOPS))


def _tests_of(where: str) -> list[tuple[str, str, int]]:
    """Take a conjunction of comparisons with numbers apart.

    Raises:
        ValueError: If it is another predicate.
    """
    parts = [_TEST.fullmatch(part.strip()) for part in re.split(r"\bAND\b", where, flags=re.IGNORECASE)]
    tests = [(match[1], match[2], int(match[3])) for match in parts if match is not None]
    if len(tests) != len(parts):
        raise ValueError(f"no conjunction of comparisons: {where}")
    return tests


def _predicate(row_type: Java, tests: list[tuple[str, str, int]]) -> Java:
    builder_class = _class("org.apache.paimon.predicate.PredicateBuilder")
    builder, integer = builder_class(row_type), _class("java.lang.Integer")
    parts = [
        getattr(builder, _COMPARISONS[operator])(builder.indexOf(name), integer(number))
        for name, operator, number in tests
    ]
    return builder_class.and_(_class("java.util.Arrays").asList(parts))


def _catalog(folder: Path) -> Java:
    path = _class("org.apache.paimon.fs.Path")((folder / "paimon").as_uri())
    context = _class("org.apache.paimon.catalog.CatalogContext").create(path)
    return _class("org.apache.paimon.catalog.CatalogFactory").createCatalog(context)


def _open_table(folder: Path) -> Java:
    return _catalog(folder).getTable(_class("org.apache.paimon.catalog.Identifier").create("ssb", "lineorder"))


def _make(folder: Path, config: Json, loops: Java) -> dict[str, float]:
    import pyarrow.dataset as ds

    files = sorted(Path(config["files"]).glob("*.parquet"))
    started = time.perf_counter()
    _write(_create_table(folder, ds.dataset(str(files[0])).schema, config["columns"]), files, loops)
    made = {"write_and_build_seconds": time.perf_counter() - started}
    for what, pattern in (("data_bytes", "*.parquet"), ("index_bytes", "*.index")):
        made[what] = sum(file.stat().st_size for file in folder.rglob(pattern))
    return made


def _create_table(folder: Path, schema: Any, columns: list[str]) -> Java:
    types = _class("org.apache.paimon.types.DataTypes")
    made = {"int32": types.INT(), "int64": types.BIGINT(), "string": types.STRING()}
    builder = _class("org.apache.paimon.schema.Schema").newBuilder()
    for field in schema:
        builder.column(field.name, made[str(field.type)])
    # One file for each commit: neither the buffer nor the size of a file ends it.
    options = {"bucket": "-1", "file.format": "parquet", "target-file-size": "8 GB"}
    for kind in _KINDS:
        options[f"file-index.{kind}.columns"] = ",".join(columns)
    for column in columns:
        options[f"file-index.bloom-filter.{column}.items"] = str(_FILE_ROWS)
        options[f"file-index.bloom-filter.{column}.fpp"] = "0.01"
    for key, value in options.items():
        builder.option(key, value)
    catalog = _catalog(folder)
    catalog.createDatabase("ssb", True)
    catalog.createTable(
        _class("org.apache.paimon.catalog.Identifier").create("ssb", "lineorder"), builder.build(), False
    )
    return _open_table(folder)


def _write(table: Java, files: list[Path], loops: Java) -> None:
    """Write a file for at most a million rows, several at once.

    Raises:
        RuntimeError: If it takes too long.
    """
    import pyarrow.parquet as pq

    total = sum(pq.read_metadata(file).num_rows for file in files)
    written, started, committing = 0, time.perf_counter(), Lock()
    pending: set[Future[int]] = set()
    with ThreadPoolExecutor(_THREADS) as pool:
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches(_FILE_ROWS):
                if len(pending) == _THREADS:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    written += sum(one.result() for one in done)
                if time.perf_counter() - started > _MOST_WRITE_SECONDS:
                    raise RuntimeError(
                        f"given up: after {_MOST_WRITE_SECONDS:.0f} s of writing row by row through its Java API, "
                        f"{written:,} of {total:,} rows were there"
                    )
                pending.add(pool.submit(_commit, table, batch, loops, committing))
        for one in pending:
            one.result()


def _commit(table: Java, batch: Any, loops: Java, committing: Lock) -> int:
    """Write a batch as one file, commit it, and give its rows."""
    import jpype
    import pyarrow as pa

    columns, dictionaries = [], []
    for column in batch.columns:
        if pa.types.is_string(column.type):
            encoded = column.dictionary_encode()
            columns.append(jpype.JArray(jpype.JInt)(encoded.indices.to_numpy(zero_copy_only=False)))
            dictionaries.append(jpype.JArray(jpype.JString)(encoded.dictionary.to_pylist()))
            continue
        of = jpype.JLong if column.type == pa.int64() else jpype.JInt
        columns.append(jpype.JArray(of)(column.to_numpy(zero_copy_only=False)))
        dictionaries.append(None)
    builder = _class("org.apache.paimon.table.sink.BatchWriteBuilderImpl")(table)
    write = builder.newWrite()
    objects = jpype.JArray(jpype.JObject)
    loops.write(write, objects(columns), objects(dictionaries), batch.num_rows)
    messages = write.prepareCommit()
    with committing:
        builder.newCommit().commit(messages)
    write.close()
    return int(batch.num_rows)


if __name__ == "__main__":
    serve(PaimonWorker)
