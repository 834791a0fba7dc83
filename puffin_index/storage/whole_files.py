"""A FileIO that gets files of metadata by one request each, where PyArrow's files first ask for the size."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Properties

from puffin_index.storage.objects import SCHEMES, OwnFileIO, StoredObject, find_object
from puffin_index.storage.parallel import in_parallel, requests_at_once


class _WholeObject(InputFile):
    """An object that is read whole when it is opened, unless somebody has read it already."""

    def __init__(self, found: StoredObject, content: memoryview | None) -> None:
        super().__init__(found.location)
        self._found = found
        self._content = content

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - bytes in memory are seekable
        """Get the object, or raise FileNotFoundError if there is no such object."""
        return cast(InputStream, pa.BufferReader(pa.py_buffer(self._read())))

    def __len__(self) -> int:
        """The size in bytes."""
        return len(self._read())

    def exists(self) -> bool:
        """Whether there is such an object."""
        try:
            self._read()
        except FileNotFoundError:
            return False
        return True

    def _read(self) -> memoryview:
        if self._content is None:
            self._content = self._found.read_all()
        return self._content


class MetadataFileIO(OwnFileIO):
    """PyArrow's FileIO, which gets the metadata of a table whole."""

    suffixes: ClassVar[tuple[str, ...]] = (".avro", ".json")

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self.held: dict[str, memoryview] = {}

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]  # PyIceberg uses what all inputs have
        """Return a file to be read."""
        found = find_object(self, location) if location.endswith(self.suffixes) else None
        return super().new_input(location) if found is None else _WholeObject(found, self.held.get(location))

    def __getstate__(self) -> dict[str, object]:
        """Leave out what is held in memory."""
        state: dict[str, object] = super().__getstate__()
        return state | {"held": {}}


class SmallTableFileIO(MetadataFileIO):
    """The same for a table whose data files are small, and are always read whole."""

    suffixes: ClassVar[tuple[str, ...]] = (*MetadataFileIO.suffixes, ".parquet")


def read_tables_whole(catalog: Catalog) -> Catalog:
    """Make a catalog of ours read the metadata of tables in S3 by one request each, unless it says what reads them."""
    if str(catalog.properties.get("warehouse", "")).startswith(SCHEMES):
        catalog.properties.setdefault(PY_IO_IMPL, f"{__name__}.{MetadataFileIO.__name__}")
    return catalog


def read_whole(table: Table, before: FileIO | None = None, *, with_data: bool = False) -> Table:
    """Make a table read its metadata by one request a file, if its FileIO is PyArrow's; also its data files if wanted.

    The FileIO is replaced, with the connections of that which it had before a refresh.
    """
    made = SmallTableFileIO if with_data else MetadataFileIO
    if type(before) is made and before.properties == table.io.properties:
        table.io = before
    elif type(table.io) in (PyArrowFileIO, MetadataFileIO):
        table.io = made(table.io.properties)
    return table


@contextmanager
def held_in_memory(io: FileIO, locations: Iterable[str]) -> Iterator[None]:
    """Get files side by side, and hold them in memory meanwhile; raise FileNotFoundError if there is no such file.

    PyIceberg reads a few manifests at a time. Without a store or its FileIO, nothing is read ahead.
    """
    if not isinstance(io, MetadataFileIO):
        yield
        return
    objects = [find_object(io, one) for one in locations if one.endswith(io.suffixes) and one not in io.held]
    found = [one for one in objects if one is not None]
    at_once = requests_at_once(io, found[0].location) if found else 1
    contents = in_parallel(StoredObject.read_all, found, at_once)
    io.held.update(zip((one.location for one in found), contents, strict=True))
    try:
        yield
    finally:
        for one in found:
            io.held.pop(one.location, None)
