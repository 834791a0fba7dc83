"""Bad fits of kind and column are told; good ones are not."""

import logging
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index.data.data_table import list_data_files
from puffin_index.definition.index_definition import IndexDefinition, ResolvedColumn, fit_warnings
from puffin_index.keys.value_types import value_type_named
from puffin_index.table_index import TableIndex
from tests.conftest import create_table


def column(type_name: str, **kinds: Mapping[str, str]) -> ResolvedColumn:
    return ResolvedColumn(1, "c", value_type_named(type_name), kinds)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (column("boolean", bsi={}), "use bitmap"),
        (column("boolean", bloom={}), "minimum and maximum"),
        (column("double", bitmap={"layout": "bitmaps"}), "a double column mostly has many distinct values"),
        (column("timestamptz", bitmap={"layout": "bitmaps"}), "a timestamptz column mostly has many distinct values"),
        (column("decimal(38,2)", bitmap={"layout": "bitmaps"}), "many distinct values"),
        (column("uuid", bsi={}), "for = and IN use bitmap or bloom"),
        (column("fixed[16]", bsi={}), "for = and IN use bitmap or bloom"),
        (column("double", bloom={}), "use bsi"),
        (column("string", bloom={"fpp": "0.5"}), "fpp=0.5"),
    ],
)
def test_a_bad_fit_is_told_in_a_sentence_that_names_the_column(bad: ResolvedColumn, said: str) -> None:
    (warning,) = fit_warnings([bad])

    assert warning.startswith("column 'c': ")
    assert said in warning


@pytest.mark.parametrize(
    "good",
    [
        column("boolean", bitmap={"layout": "postings"}),
        column("int", bitmap={"layout": "bitmaps"}, bsi={}, bloom={}),
        column("string", bitmap={"layout": "bitmaps"}, bsi={}, bloom={"fpp": "0.01"}),
        column("double", bitmap={}, bsi={}),
        column("timestamp", bitmap={"layout": "postings"}, bsi={}),
        column("uuid", bitmap={}, bloom={}),
        column("decimal(9,2)", bitmap={"layout": "bitmaps"}, bsi={}),
    ],
)
def test_a_good_fit_is_not_told(good: ResolvedColumn) -> None:
    assert fit_warnings([good]) == []


def test_create_logs_a_bad_fit_and_goes_on(local_catalog: SqlCatalog, caplog: pytest.LogCaptureFixture) -> None:
    create_table(local_catalog, "t", pa.table({"flag": [True, False], "id": [1, 2]}), 500)
    with caplog.at_level(logging.WARNING, logger="puffin_index"):
        index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["flag", "id"]))

    assert [set(column.kinds) for column in index.columns] == [{"bsi"}, {"bsi"}]
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "column 'flag': bsi is for comparisons, and a boolean has only two values; use bitmap"
    ]


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        ([f"{number * 0x9E3779B97F4A7C15 % 2**64:016x} ok" for number in range(3000)], True),
        ([f"user u{number % 7} took {number % 90} ms" for number in range(3000)], False),
        ([], False),
        (None, False),
    ],
)
def test_create_tells_that_words_are_mostly_unique(
    local_catalog: SqlCatalog, caplog: pytest.LogCaptureFixture, lines: list[str] | None, is_told: bool
) -> None:
    table = create_table(local_catalog, "t", pa.table({"note": pa.array(lines or ["a lost file"], pa.string())}), 500)
    if lines is None:
        (file,) = list_data_files(table)
        Path(url2pathname(urlparse(file.path).path)).unlink()
    with caplog.at_level(logging.WARNING, logger="puffin_index"):
        TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["note#c#words"]))

    told = ["89% of its words, by length, occur once" in record.getMessage() for record in caplog.records]
    assert any(told) is is_told
