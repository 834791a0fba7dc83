"""Verification finds every kind of damage, says where it is, and repairs it."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import CorruptFileError
from puffin_index.index_table.entries import replace_entries
from puffin_index.keys import arrow_keys
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import Column, SortedColumn
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.base import Payload
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.parts import checksum32
from tests.puffin_index.data.pages.random_files import random_value
from tests.puffin_index.indexed_table import check_index, indexed, named_segments, rows
from tests.puffin_index.kinds.columns import ARROW_TYPES
from tests.puffin_index.kinds.counting import open_payload


def damage(location: str, position: int) -> None:
    path = Path(location.removeprefix("file://"))
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def test_a_good_index_has_no_findings_and_a_file_without_index_is_none(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 3)
    index.data_table.append(rows(9))

    report = index.verify(None)

    assert report.findings == ()
    assert (report.data_files, report.indexed_data_files, report.segments, report.row_groups) == (4, 3, 3, 9)
    assert index.verify(2).row_groups == 2


@pytest.mark.parametrize("spill_bytes", [1, 1 << 20])
def test_an_index_of_large_columns_is_right(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, spill_bytes: int
) -> None:
    monkeypatch.setattr(arrow_keys, "LARGE_COLUMN_BYTES", 0)
    monkeypatch.setattr(arrow_keys, "SPILL_BYTES", spill_bytes)
    index = indexed(local_catalog, 2, IndexDefinition.of(bitmap=["k", "s", "b"], bsi=["k"], bloom=["s"]))

    assert index.verify(None).findings == ()
    monkeypatch.undo()
    assert index.verify(None).findings == ()


@pytest.mark.one_of(2)
@pytest.mark.parametrize("layout", ["postings", "bitmaps"])
def test_indexes_of_every_type_have_no_findings_before_and_after_merges(local_catalog: SqlCatalog, layout: str) -> None:
    types = {f"c{number}": name for number, name in enumerate(ARROW_TYPES) if not name.endswith("_ns")}
    properties = {"write.parquet.row-group-limit": "40"}
    parts = [pa.table({column: _some_values(name, seed) for column, name in types.items()}) for seed in range(3)]
    table = local_catalog.create_table("ns.t", parts[0].schema, properties=properties)
    options = {f"{column}.layout": layout for column in types}
    index = TableIndex.create(
        local_catalog, "ns.t", IndexDefinition.of(bitmap=types, bsi=types, bloom=types, options=options)
    )
    for part in parts:
        table.append(part)
        index.build(workers=1)

    assert index.verify(None).findings == ()
    assert index.verify(None).row_groups == 9
    index.compact()
    assert index.verify(None).findings == ()


def _some_values(type_name: str, seed: int) -> pa.Array:
    """100 values of a type, each of them twice at least, and NULLs."""
    chooser, arrow_type = random.Random(seed), ARROW_TYPES[type_name]
    known = [value for _ in range(50) for value in [random_value(arrow_type, chooser)] * 2]
    return pa.array([None if number % 9 == seed else value for number, value in enumerate(known)], arrow_type)


def test_a_flipped_bit_is_found_wherever_it_is(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 1)
    (segment,) = named_segments(index)
    path = Path(segment.removeprefix("file://"))
    original = path.read_bytes()
    for position in random.Random(3).sample(range(len(original)), 40):
        path.write_bytes(original)
        damage(segment, position)

        report = index.verify(0)

        assert report.findings, position
        assert {finding.file for finding in report.findings} == {segment}
    path.write_bytes(original)
    assert index.verify(0).findings == ()


def test_a_missing_and_a_cut_segment_are_found_and_repaired(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 3)
    missing, cut, _ = sorted(named_segments(index))
    Path(missing.removeprefix("file://")).unlink()
    path = Path(cut.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-100])

    report = index.verify(repair=True)

    assert {finding.file for finding in report.findings} == {missing, cut}
    assert report.repaired_data_files == 2
    assert not {missing, cut} & named_segments(index)
    check_index(index)


def test_trouble_with_a_data_file_is_found_once_however_many_segments_index_it(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 1, IndexDefinition.of(bitmap=["k"]))
    index.add_kinds(IndexDefinition.of(bsi=["k"]))
    index.build(workers=1)
    assert len(named_segments(index)) == 2
    (file,) = list_data_files(index.data_table)
    Path(file.path.removeprefix("file://")).unlink()

    assert [finding.file for finding in index.verify(None).findings] == [file.path]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: row | {"record_count": 7}, "indexed as a file"),
        (lambda row: row | {"first_row_group": 1}, "row groups of"),
        (lambda row: row | {"first_base": 65_536}, "not those of its entry"),
    ],
)
def test_an_entry_that_does_not_fit_is_found_and_repaired(
    local_catalog: SqlCatalog, change: Callable[[dict[str, object]], dict[str, object]], said: str
) -> None:
    index = indexed(local_catalog, 2)

    def tamper(entries: pa.Table) -> pa.Table:
        first, *others = entries.to_pylist()
        return pa.Table.from_pylist([change(first), *others], entries.schema)

    replace_entries(index.index_table, tamper)

    report = index.verify(None, repair=True)

    assert any(said in finding.what for finding in report.findings)
    check_index(index)


def test_an_entry_that_is_there_twice_is_found(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 1)
    replace_entries(index.index_table, lambda entries: pa.concat_tables([entries, entries]))

    assert ["indexed twice" in finding.what for finding in index.verify(0).findings] == [True]


def test_an_index_of_other_values_is_found(local_catalog: SqlCatalog) -> None:
    """Everything fits but the values: the entry of one file is given the segment of another of the same shape."""
    index = indexed(local_catalog, 2)
    names = ["data_file", "file_size_in_bytes"]

    def swap(entries: pa.Table) -> pa.Table:
        for name in names:
            place = entries.schema.get_field_index(name)
            swapped = pa.array(entries[name].to_pylist()[::-1], entries.schema.field(place).type)
            entries = entries.set_column(place, entries.schema.field(place), swapped)
        return entries

    replace_entries(index.index_table, swap)

    assert index.verify(None).findings


@pytest.mark.parametrize("kind", ["bitmap", "bsi"])
def test_a_row_under_another_key_is_found_whichever_it_is(kind: str) -> None:
    long = value_type_named("long")
    values = [3, 3, 4, None, 9, 9, 9, 12]
    payload = KINDS[kind].build(SortedColumn(column_of(pa.array(values, pa.int64()), long)), {})
    index, _ = open_payload(kind, payload, long, len(values))
    prove = KINDS[kind].proof(index, np.array([len(values)]))
    assert [*prove(0, SortedColumn(column_of(pa.array(values, pa.int64()), long)))] == []
    for place in range(len(values)):
        for other in {3, 4, 9, 12, 13, None} - {values[place]}:
            changed = [*values[:place], other, *values[place + 1 :]]
            assert [*prove(0, SortedColumn(column_of(pa.array(changed, pa.int64()), long)))] != []


@pytest.mark.parametrize(
    ("kind", "type_name", "options", "separators_from", "step", "end_at"),
    [
        # The separators of bitmaps stand behind their counts, with an offset each, and those of a dictionary of two
        # blocks behind its header and four columns of numbers.
        ("bitmap", "long", {"layout": "bitmaps", "index-block-size": "64b"}, 14, 12, 3),
        ("bsi", "double", {}, 20 + 4 * 4 * 2, 8, 2),
    ],
)
@pytest.mark.parametrize("are_later", [False, True])
def test_a_directory_that_leads_to_another_block_than_that_of_a_key_is_found(
    kind: str, type_name: str, options: dict[str, str], separators_from: int, step: int, end_at: int, are_later: bool
) -> None:
    value_type = value_type_named(type_name)
    column = SortedColumn(column_of(pa.array(np.arange(3_000) * 7, ARROW_TYPES[type_name]), value_type))
    built = KINDS[kind].build(column, options)

    def said(payload: Payload) -> list[str]:
        index, _ = open_payload(kind, payload, value_type, 3_000)
        return [*KINDS[kind].proof(index, np.array([3_000]))(0, column)]

    assert said(built) == []
    data, layout = bytearray(built.data), built.layout.copy()
    second = separators_from + step
    known = second if are_later else separators_from
    data[second : second + 8] = (int.from_bytes(data[known : known + 8], "big", signed=True) + 1).to_bytes(8, "big")
    layout[end_at + 1] = checksum32(data[: int(layout[end_at])])

    with pytest.raises(CorruptFileError, match="keys that lie in other blocks"):
        said(replace(built, data=data, layout=layout))


def test_a_dictionary_of_more_keys_than_the_data_has_is_found() -> None:
    string = value_type_named("string")
    texts = pa.array([b"a", b"b", b"c"], pa.large_binary())
    column = SortedColumn(column_of(pa.array(["a", "a", "c"]), string))
    coded = Column(string, 3, pa.DictionaryArray.from_arrays(pa.array([0, 0, 2], pa.uint32()), texts), None)
    index, _ = open_payload("bsi", KINDS["bsi"].build(SortedColumn(coded), {}), string, 3)

    assert [*KINDS["bsi"].proof(index, np.array([3]))(0, column)] == ["a list of other keys than the data has"]


def test_a_bloom_filter_that_misses_a_value_is_found() -> None:
    long = value_type_named("long")
    values = np.arange(500)
    payload = KINDS["bloom"].build(SortedColumn(column_of(pa.array(values), long)), {})
    index, _ = open_payload("bloom", payload, long, 500)
    prove = KINDS["bloom"].proof(index, np.array([500]))
    assert [*prove(0, SortedColumn(column_of(pa.array(values), long)))] == []
    assert [*prove(0, SortedColumn(column_of(pa.array(np.arange(10_000)), long)))] != []
