"""The errors of this project, one tree under `PuffinIndexError`.

PuffinIndexError
├── CorruptFileError       bytes that break their format (also a `ValueError`)
├── UnsupportedError       a version, flag, type or feature that this release does not know
├── DefinitionError        an index definition that does not fit the table
├── WhereSyntaxError       a WHERE text that does not parse (also a `ValueError`)
├── NotFoundError          a table, column, index or file that is not there
├── CatalogError           a catalog that cannot be reached or is not configured
└── BuildError             a build that could not finish
"""

from __future__ import annotations


class PuffinIndexError(Exception):
    """Base of every error that this project raises on purpose."""


class CorruptFileError(PuffinIndexError, ValueError):
    """Say that the bytes of a file break its format.

    Attributes:
        location: The file, as far as it is known (`<bytes>` for bytes in memory).
        offset: Where in the file the trouble was seen, in bytes.
        reason: What is wrong there.
    """

    def __init__(self, reason: str, *, location: str = "<bytes>", offset: int = 0) -> None:
        self.reason = reason
        self.location = location
        self.offset = offset
        super().__init__(reason, location, offset)

    def __str__(self) -> str:
        return f"{self.location}, byte {self.offset}: {self.reason}"


class UnsupportedError(PuffinIndexError):
    """Say that a version, flag, type or feature is unknown to this release."""


class DefinitionError(PuffinIndexError):
    """Say that an index definition does not fit the table."""


class WhereSyntaxError(PuffinIndexError, ValueError):
    """Say that a WHERE text does not parse, with a caret under the place.

    Attributes:
        text: The text.
        position: Zero-based character offset of the trouble.
        expected: What could have stood there.
    """

    def __init__(self, text: str, position: int, expected: str) -> None:
        self.text = text
        self.position = position
        self.expected = expected
        super().__init__(text, position, expected)

    def __str__(self) -> str:
        start = self.text.rfind("\n", 0, self.position) + 1
        end = self.text.find("\n", self.position)
        line = self.text[start : end if end >= 0 else None]
        column = self.position - start
        # A window keeps the caret visible when a generated WHERE is one very long line.
        left = max(0, column - 60)
        window = line[left : column + 60]
        return f"expected {self.expected}\n  {window}\n  {' ' * (column - left)}^"


class NotFoundError(PuffinIndexError):
    """Say that a table, column, index or file is not there."""


class CatalogError(PuffinIndexError):
    """Say that a catalog cannot be reached or is not configured."""


class BuildError(PuffinIndexError):
    """Say that an index build could not finish."""
