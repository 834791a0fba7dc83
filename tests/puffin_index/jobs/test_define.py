"""Kinds that are taken out of a definition are out of the entries as well, whoever changes the definition meanwhile."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import DefinitionError
from puffin_index.index_table.entries import field_kinds
from puffin_index.index_table.table import read_entries
from tests.puffin_index.indexed_table import check_queries, indexed


def test_queries_no_longer_use_what_was_removed(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 2, IndexDefinition.of(bitmap=["k", "s"], bsi=["k"]))
    TableIndex.add(local_catalog, "ns.t", "both", IndexDefinition.of(bitmap=["k"], bsi=["k"]))

    index.remove_kinds(IndexDefinition.of(bitmap=["k"]))

    index.refresh()
    left = {pair for own in field_kinds(read_entries(index.index_table)) for pair in own}
    k = index.data_table.schema().find_field("k").field_id
    assert (k, "bitmap") not in left
    assert (k, "bsi") in left
    assert {one.name: len(one.indexes) for one in index.names} == {"both": 1, "s_bitmap": 1}
    check_queries(index)
    with pytest.raises(DefinitionError, match="no bitmap to remove"):
        index.remove_kinds(IndexDefinition.of(bitmap=["k"]))
    with pytest.raises(DefinitionError, match="nothing of the definition would be left"):
        index.remove_kinds(IndexDefinition.of(bitmap=["s"], bsi=["k"]))
    assert planner.count(index, "k = 1").rows == len(index.data_table.scan("k = 1").to_arrow())


def test_kinds_are_added_to_what_others_have_added(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 1, IndexDefinition.of(bitmap=["k"]))
    TableIndex.open(local_catalog, "ns.t").add_kinds(IndexDefinition.of(bitmap=["s"]))

    index.add_kinds(IndexDefinition.of(bsi=["k"]))

    index.refresh()
    assert {column.name: sorted(column.kinds) for column in index.columns} == {"k": ["bitmap", "bsi"], "s": ["bitmap"]}
    index.build(workers=1)
    check_queries(index)
