"""A wrong index: built over other values than the data file has now, with checksums that are right."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

from puffin_index import IndexDefinition, TableIndex

ROWS = 400
ROW_GROUP_ROWS = 50
OLD, NEW = 0x1122334455667711, 0x1122334455667700
"""One row of the third row group had the old value when the index was built, and has the new one now."""

Plant = Callable[[IndexDefinition], TableIndex]


def overwrite(location: str, old: int, new: int) -> None:
    """Change a number of 64 bits in a data file that is not compressed, wherever it stands."""
    path = Path(urlparse(location).path)
    content = path.read_bytes()
    assert old.to_bytes(8, "little") in content
    path.write_bytes(content.replace(old.to_bytes(8, "little"), new.to_bytes(8, "little")))
