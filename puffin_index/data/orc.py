"""Open ORC files through a FileIO."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyarrow.orc import ORCFile
from pyiceberg.io import FileIO

from puffin_index.errors import CorruptFileError, NotFoundError


@contextmanager
def open_orc(io: FileIO, location: str) -> Iterator[ORCFile]:
    """Open an ORC file.

    Raises:
        NotFoundError: If the file does not exist.
        CorruptFileError: If the file is not an ORC file, or cannot be read in the block.
    """
    try:
        stream = io.new_input(location).open(seekable=True)
    except FileNotFoundError as error:
        raise NotFoundError(f"file not found: {location}") from error
    with stream:
        try:
            yield ORCFile(stream)
        except (pa.ArrowException, OSError) as error:
            raise CorruptFileError(f"it cannot be read as ORC: {error}", location=location) from error
