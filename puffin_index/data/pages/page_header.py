"""The header of a Parquet page: how long the page is, and how many values it holds."""

from __future__ import annotations

from dataclasses import dataclass

from puffin_index.data.thrift_compact import CompactReader, broken_means_corrupt

_TYPE, _CONTENT_BYTES = 1, 3
_DATA, _DATA_V2 = 5, 8
_VALUES, _ROWS = 1, 3
_DICTIONARY_TYPE = 2
_DATA_TYPES = (0, 3)


@dataclass(frozen=True, slots=True)
class PageHeader:
    """A page header.

    Attributes:
        is_data: Whether the page is a data page.
        is_dictionary: Whether the page is a dictionary page.
        size: The bytes of the page with its header.
        values: The values of a data page, NULLs and empty lists included.
        rows: The rows of a data page; None if the header does not say.
    """

    is_data: bool
    is_dictionary: bool
    size: int
    values: int
    rows: int | None


def parse_page_header(page: memoryview, location: str, offset: int) -> PageHeader:
    """Parse the header at the beginning of a page.

    Args:
        page: The page.
        location: The file.
        offset: Where the page begins in the file.

    Raises:
        CorruptFileError: If the bytes are no page header.
    """
    numbers: dict[int, int] = {}
    data: dict[int, int] = {}
    rows: int | None = None
    with broken_means_corrupt("the page header", location, offset):
        reader = CompactReader(page)
        for number, kind in reader.fields():
            if number in (_TYPE, _CONTENT_BYTES):
                numbers[number] = reader.integer()
            elif number in (_DATA, _DATA_V2):
                data = reader.integers()
                rows = data.get(_ROWS) if number == _DATA_V2 else None
            else:
                reader.skip(kind)
    kind = numbers.get(_TYPE, -1)
    size = reader.at + numbers.get(_CONTENT_BYTES, -1)
    return PageHeader(kind in _DATA_TYPES, kind == _DICTIONARY_TYPE, size, data.get(_VALUES, -1), rows)
