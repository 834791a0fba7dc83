"""Damage of an index table itself: turn errors of reading its files into one sentence that names the way out."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from requests.exceptions import RequestException

from puffin_index.errors import DamagedIndexError
from puffin_index.storage.files import in_context

_BROKEN = (
    ArithmeticError,
    AssertionError,
    EOFError,
    LookupError,
    MemoryError,
    SystemError,
    TypeError,
    ValueError,
    ValidationError,
    pa.ArrowException,
    zlib.error,
)
"""The errors of PyIceberg's readers of JSON, Avro and Parquet for bytes that break their format."""

_LOCATION = re.compile(r"'([^']+)'|((?:\w[\w+.-]*:/|/).*)")


@contextmanager
def index_table_read(name: str) -> Iterator[None]:
    """Translate errors of a block that reads files of an index table.

    Args:
        name: The index table.

    Raises:
        DamagedIndexError: If a file of the table is missing or broken.
        OSError: If a file cannot be reached; the message names the table.
    """
    try:
        yield
    except RequestException:
        raise
    except FileNotFoundError as error:
        file = _location_in(error)
        raise DamagedIndexError(name, f"{file} is missing", file) from error
    except OSError as error:
        raise in_context(error, f"index table {name} cannot be read") from error
    except _BROKEN as error:
        reason = (str(error).splitlines() or [""])[0]
        raise DamagedIndexError(name, f"one of its files is broken ({type(error).__name__}: {reason})") from error


def _location_in(error: FileNotFoundError) -> str:
    """Return the missing file from the text of the error; PyArrow quotes the location without its scheme."""
    text = str(error.filename or error).splitlines()[0]
    found = _LOCATION.search(text)
    return found[1] or found[2] if found else text
