"""A wrong index: built over other values than the data file has now, with checksums that are right."""

from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
from pyiceberg.catalog import Catalog

from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files

ROWS = 400
OLD, NEW = 0x1122334455667711, 0x1122334455667700
"""Row 120, of the third row group, had the old key when the index was built, and has the new one now."""

KEYS = [OLD if row == 120 else row << 32 | row * 7919 % ROWS for row in range(ROWS)]


def planted(catalog: Catalog, name: str, definition: IndexDefinition) -> TableIndex:
    """Make a table of `k`, `v` and `s` in 8 row groups, with such an index."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
    properties = {"write.parquet.row-group-limit": "50", "write.parquet.compression-codec": "uncompressed"}
    table = catalog.create_table(name, schema, properties=properties)
    rows = {"k": KEYS, "v": [row % 10 for row in range(ROWS)], "s": [f"s{row % 97}" for row in range(ROWS)]}
    table.append(pa.table(rows, schema=schema))
    index = TableIndex.create(catalog, name, definition)
    index.build(workers=1)
    (file,) = list_data_files(table)
    path = Path(urlparse(file.path).path)
    # Statistics of row groups have the number as well.
    path.write_bytes(path.read_bytes().replace(OLD.to_bytes(8, "little"), NEW.to_bytes(8, "little")))
    return index
