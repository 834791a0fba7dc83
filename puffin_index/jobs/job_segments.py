"""The segments that one build or compaction writes: what is not committed when the job fails is deleted."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from requests.exceptions import RequestException
from sqlalchemy.exc import DBAPIError

from puffin_index.catalogue.index_table import read_entries, refresh_index_table, segments_folder
from puffin_index.catalogue.open_catalog import PASSING_ERRORS
from puffin_index.catalogue.stored_files import delete_files, list_stored_files
from puffin_index.errors import NotFoundError, PuffinIndexError
from puffin_index.segments.segment import new_segment_location

_ID_DIGITS = 16
_log = logging.getLogger(__name__)


class JobSegments(AbstractContextManager["JobSegments"]):
    """The segments of one job, told by the id that their names begin with.

    Used as a context manager: where the block fails, segments of the job that no entry names are deleted, and so are
    half-written ones of processes that were killed. Those of a commit of which nobody knows how it ended stay.

    Args:
        index_table: The index table.

    Attributes:
        job_id: What the names begin with.
    """

    def __init__(self, index_table: Table) -> None:
        self.job_id = uuid.uuid4().hex[:_ID_DIGITS]
        self._index_table = index_table
        self._in_doubt: set[str] = set()

    def new_location(self) -> str:
        """Return where a new segment is written."""
        return new_segment_location(segments_folder(self._index_table), self.job_id)

    @contextmanager
    def committing(self, locations: Iterable[str]) -> Iterator[None]:
        """Commit segments; unless it is clear how that ended, they are kept."""
        self._in_doubt.update(locations)
        try:
            yield
        except (CommitFailedException, ValidationException, PuffinIndexError, OSError, DBAPIError) as error:
            if _says_not_committed(error):
                self._in_doubt.clear()
            raise
        self._in_doubt.clear()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            return
        try:
            self._delete_uncommitted()
        except PASSING_ERRORS as error:
            _log.warning("segments of a failed job are left to `expire`: %s", error)

    def _delete_uncommitted(self) -> None:
        kept = self._in_doubt | self._committed()
        listed = list_stored_files(self._index_table.io, segments_folder(self._index_table))
        own = [file for file in listed if file.name.startswith(self.job_id)]
        delete_files(self._index_table.io, [file for file in own if file.location not in kept])

    def _committed(self) -> set[str]:
        try:
            refresh_index_table(self._index_table)
        except NotFoundError:
            # The index was dropped meanwhile.
            return set()
        return set(read_entries(self._index_table)["segment"].to_pylist())


def _says_not_committed(error: Exception) -> bool:
    # All files are written before the catalog is asked, and a database that answers with an error has rolled back.
    # A connection that is lost says nothing.
    return not isinstance(error, RequestException) and not getattr(error, "connection_invalidated", False)
