"""The option `layout` of the kind bitmap, checked and followed by the segment writer."""

from collections.abc import Mapping

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index.definition.index_definition import IndexDefinition
from puffin_index.errors import DefinitionError
from puffin_index.formats.puffin import read_footer
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.bitmap.kind import PAIMON_BITMAP
from puffin_index.kinds.postings.build import POSTINGS
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.files import FileReader
from puffin_index.table_index import TableIndex
from tests.conftest import create_table


def test_postings_have_no_blocks_of_bitmaps() -> None:
    with pytest.raises(DefinitionError, match="layout=postings of a int column goes with no index-block-size"):
        KINDS["bitmap"].check(value_type_named("int"), {"layout": "postings", "index-block-size": "16kb"})


@pytest.mark.parametrize(
    ("options", "blob_type"),
    [
        ({"few.layout": "postings"}, POSTINGS),
        ({"few.layout": "bitmaps"}, PAIMON_BITMAP),
        ({"many.layout": "postings"}, POSTINGS),
        ({"many.layout": "bitmaps"}, PAIMON_BITMAP),
    ],
)
def test_the_segment_has_the_layout_that_was_asked_for(
    options: Mapping[str, str], blob_type: str, local_catalog: SqlCatalog
) -> None:
    data = pa.table({"few": [row % 3 for row in range(1000)], "many": [row * 7919 % 1000 for row in range(1000)]})
    create_table(local_catalog, "t", data, 250)
    column = next(iter(options)).split(".")[0]
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=[column], options=options))
    index.build(workers=1)
    (location,) = set(index.index_table.scan().to_arrow()["segment"].to_pylist())
    with FileReader(index.index_table.io, location) as reader:
        found = {blob.type for blob in read_footer(reader).blobs if blob.type in (PAIMON_BITMAP, POSTINGS)}

    assert found == {blob_type}
