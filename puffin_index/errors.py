"""The errors of this project, all `PuffinIndexError`."""

import re
from collections.abc import Iterable
from difflib import get_close_matches


class PuffinIndexError(Exception):
    """Base of every error that this project raises on purpose."""


class CorruptFileError(PuffinIndexError, ValueError):
    """Say that the bytes of a file (`<bytes>` in memory) break its format at an offset, and why."""

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


class IndexExistsError(DefinitionError):
    """Say that another index has the name of a new one."""


class WhereSyntaxError(PuffinIndexError, ValueError):
    """Say that a WHERE text does not parse at a zero-based offset, and what could stand there."""

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
        window = line[left : column + 60].encode(errors="backslashreplace").decode()
        return f"expected {self.expected}\n  {window}\n  {' ' * (column - left)}^"


class NotFoundError(PuffinIndexError):
    """Say that a table, column, index or file is not there."""


class DamagedIndexError(PuffinIndexError):
    """Say that files of an index table itself (perhaps one) are missing or broken, and how to get out."""

    def __init__(self, index_table: str, reason: str, file: str | None = None) -> None:
        self.index_table = index_table
        self.reason = reason
        self.file = file
        super().__init__(index_table, reason, file)

    def __str__(self) -> str:
        return (
            f"index table {self.index_table} is damaged: {self.reason}; `puffin-index drop` removes what is left, "
            "then `create` and `build` make the index anew"
        )


class MissingExtraError(PuffinIndexError, ImportError):
    """Say which package is not installed, and the extra of puffin-index that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{package} is not installed: install puffin-index[{extra}]")


class CatalogError(PuffinIndexError):
    """Say that a catalog cannot be reached or is not configured."""


class BuildError(PuffinIndexError):
    """Say that an index build could not finish."""


READ_ERRORS = (CorruptFileError, UnsupportedError, NotFoundError, OSError)
"""What a reader raises if it cannot use a part of an index, or a delete file."""


def reason_at(location: str, error: BaseException) -> str:
    """Return what an error says about a file, without the file's location, which the caller names."""
    if isinstance(error, CorruptFileError) and error.location == location:
        return f"byte {error.offset}: {error.reason}"
    # Stores name the file by its path, or by its key.
    path = location.partition("://")[2]
    names = "|".join(map(re.escape, filter(None, (location, path, path.partition("/")[2]))))
    return re.sub(rf"^(?:{names})(?:, |: )|(?:: |\s)/?(?:{names})(?!\S)|\s['\"]/?(?:{names})['\"]", "", str(error))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that asks for the nearest of known names; empty if none is near."""
    by_lower = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), by_lower, 1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""
