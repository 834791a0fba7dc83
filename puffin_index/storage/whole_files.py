"""A FileIO that gets files of metadata by one request each, where PyArrow's files first ask for the size."""

from __future__ import annotations

from typing import ClassVar, cast

import pyarrow as pa
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from puffin_index.storage.objects import StoredObject, find_object


class _WholeObject(InputFile):
    """An object that is read whole when it is opened."""

    def __init__(self, found: StoredObject) -> None:
        super().__init__(found.location)
        self._found = found

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - bytes in memory are seekable
        """Get the object.

        Raises:
            FileNotFoundError: If there is no such object.
        """
        return cast(InputStream, pa.BufferReader(pa.py_buffer(self._found.read_all())))

    def __len__(self) -> int:
        """The size in bytes."""
        return len(self._found.read_all())

    def exists(self) -> bool:
        """Whether there is such an object."""
        try:
            self._found.read_all()
        except FileNotFoundError:
            return False
        return True


class MetadataFileIO(PyArrowFileIO):
    """PyArrow's FileIO, which gets the metadata of a table whole."""

    suffixes: ClassVar[tuple[str, ...]] = (".avro", ".json")

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]  # PyIceberg uses what all inputs have
        """Return a file to be read."""
        found = find_object(self, location) if location.endswith(self.suffixes) else None
        return super().new_input(location) if found is None else _WholeObject(found)


class SmallTableFileIO(MetadataFileIO):
    """The same for a table whose data files are small, and are always read whole."""

    suffixes: ClassVar[tuple[str, ...]] = (*MetadataFileIO.suffixes, ".parquet")


def read_whole(table: Table, before: FileIO | None = None, *, with_data: bool = False) -> Table:
    """Make a table read its metadata by one request a file, if its FileIO is PyArrow's.

    Args:
        table: The table, whose FileIO is replaced.
        before: The FileIO that the table had before it was refreshed: its connections are kept.
        with_data: Whether data files are read whole, too.
    """
    made = SmallTableFileIO if with_data else MetadataFileIO
    if type(before) is made and before.properties == table.io.properties:
        table.io = before
    elif type(table.io) in (PyArrowFileIO, MetadataFileIO):
        table.io = made(table.io.properties)
    return table
