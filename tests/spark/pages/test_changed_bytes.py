"""Pages of data files whose bytes have changed give the right rows or an error, and none where they are not needed."""

from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from random import Random

import pytest
from py4j.protocol import Py4JError
from pyiceberg.catalog.sql import SqlCatalog
from pyroaring import BitMap
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.conftest import amount, built
from tests.parquet_footer_edit import Struct, columns, edit_footer, metadata, row_groups
from tests.processes import wait_for
from tests.spark.agreement import rows_of
from tests.spark.java_source import log_of_java
from tests.spark.pages.chosen_rows import LISTS, reading_only

pytestmark = pytest.mark.spark


FEW_LISTS = f"{LISTS} FROM range(0, 3000, 1, 1)"
MIXED = "md5(CAST(IF(id < 20000, id % 4500, id) AS STRING)) AS text FROM range(0, 40000, 1, 1)"
"""Four pages of values that come again, in a dictionary of 80 kB, and pages of values that are too many for one."""


class Flipped:
    """A table of one data file whose bytes are changed, one at a time."""

    WANTED = (5, 777, 2400)

    def __init__(
        self, spark: SparkSession, catalog: SqlCatalog, name: str, columns: str = FEW_LISTS, page_rows: int = 100
    ) -> None:
        spark.sql(
            f"CREATE TABLE lake.{name} USING iceberg TBLPROPERTIES ('write.parquet.page-row-limit'='{page_rows}', "
            f"'write.parquet.dict-size-bytes'='200000') AS SELECT id, {columns}"
        )
        built(catalog, name, bitmap=["id"])
        [(file,)] = spark.sql(f"SELECT file_path FROM lake.{name}.files").collect()
        self.path = Path(file.removeprefix("file:"))
        # Hadoop would refuse a changed file by its checksums.
        self.path.with_name(f".{self.path.name}.crc").unlink()
        self.content, self.random = self.path.read_bytes(), Random(7)
        self.query = f"SELECT * FROM lake.{name} WHERE id IN {self.WANTED}"

    def flip(self, place: int) -> None:
        """Change a byte, of the file as it was written."""
        damaged = bytearray(self.content)
        damaged[place] ^= self.random.randint(1, 255)
        self.path.write_bytes(damaged)

    def chunks(self, start: Callable[[Struct], int], length: Callable[[Struct], int]) -> list[range]:
        """Parts of the file, by what the footer says of each column."""
        found: list[range] = []

        def find(footer: Struct) -> None:
            for column in columns(row_groups(footer)[0]):
                found.append(range(start(column), start(column) + length(column)))

        edit_footer(self.path, find)
        return found


def test_flipped_bytes_of_an_offset_index_never_give_other_rows(enabled: SparkSession, catalog: SqlCatalog) -> None:
    flipped = Flipped(enabled, catalog, "pages.flipped")
    expected = rows_of(enabled, flipped.query, enabled=False)
    places = [*chain(*flipped.chunks(lambda column: column[4][1], lambda column: column[5][1]))]
    with log_of_java(enabled) as log, reading_only(lambda _: BitMap(Flipped.WANTED)):
        for place in flipped.random.sample(places, amount(20, 500)):
            flipped.flip(place)
            assert rows_of(enabled, flipped.query, enabled=True) == expected, place
        # Spark tells it a little after the query.
        told = "pages not picked on an executor"
        assert wait_for(lambda: any(told in line and flipped.path.name in line for line in log()), 10)


def test_flipped_bytes_of_pages_give_an_error_or_what_iceberg_reads(enabled: SparkSession, catalog: SqlCatalog) -> None:
    flipped = Flipped(enabled, catalog, "pages.damaged")
    expected = rows_of(enabled, flipped.query, enabled=False)
    outcomes = Counter[str]()
    # Of other keys than the indexed ones, other rows would be right.
    _, text, items = flipped.chunks(lambda column: metadata(column)[9][1], lambda column: metadata(column)[7][1])
    with reading_only(lambda _: BitMap(Flipped.WANTED)):
        for place in flipped.random.sample([*text, *items], amount(20, 500)):
            flipped.flip(place)
            try:
                found = rows_of(enabled, flipped.query, enabled=True)
            except (PySparkException, Py4JError):
                outcomes["error"] += 1
                continue
            outcomes["rows"] += 1
            assert found == expected or found == rows_of(enabled, flipped.query, enabled=False), place
    assert outcomes["rows"] > 0


def test_a_dictionary_is_read_only_where_a_wanted_page_needs_it(enabled: SparkSession, catalog: SqlCatalog) -> None:
    flipped = Flipped(enabled, catalog, "pages.mixed", MIXED, 5_000)

    def start(column: Struct) -> int:
        return int(metadata(column).get(11, metadata(column)[9])[1])

    _, dictionary = flipped.chunks(start, lambda column: metadata(column)[9][1] - start(column))
    assert len(dictionary) > 64 << 10, "smaller ones are read along"
    for wanted in ([10], [39_000], [10, 19_999, 20_000, 39_000], [17, 17_017]):
        query = f"SELECT * FROM lake.pages.mixed WHERE id IN ({', '.join(map(str, wanted))})"
        expected = rows_of(enabled, query, enabled=False)
        assert len(expected) == len(wanted)
        with reading_only(lambda _, wanted=wanted: BitMap(wanted)):
            assert rows_of(enabled, query, enabled=True) == expected
            if min(wanted) == 39_000:
                damaged = bytearray(flipped.content)
                damaged[dictionary.start : dictionary.stop] = b"x" * len(dictionary)
                flipped.path.write_bytes(damaged)
                assert rows_of(enabled, query, enabled=True) == expected
                flipped.path.write_bytes(flipped.content)
