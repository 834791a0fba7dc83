"""The segments that one build or compaction writes; a failing job deletes its uncommitted segments."""

import logging
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from requests.exceptions import RequestException
from sqlalchemy.exc import DBAPIError

from puffin_index.errors import NotFoundError, PuffinIndexError
from puffin_index.index_table.open_catalog import PASSING_ERRORS
from puffin_index.index_table.stored_files import delete_files, list_stored_files
from puffin_index.index_table.table import read_entries, refresh_index_table, segments_folder
from puffin_index.jobs.log_lines import reason_of
from puffin_index.segments.segment import new_segment_location

_ID_DIGITS = 16
_log = logging.getLogger(__name__)


class JobSegments(AbstractContextManager["JobSegments"]):
    """The segments of one job, whose names begin with the id of the job.

    After a failing block it deletes those that no entry names, also half-written ones of killed processes. Segments of
    a commit with unknown outcome stay.
    """

    def __init__(self, index_table: Table) -> None:
        self.job_id = uuid.uuid4().hex[:_ID_DIGITS]
        self._index_table = index_table
        self._in_doubt: set[str] = set()

    def new_location(self) -> str:
        """Return the location of a new segment."""
        return new_segment_location(segments_folder(self._index_table), self.job_id)

    @contextmanager
    def committing(self, locations: Iterable[str]) -> Iterator[None]:
        """Mark segments as being committed; they are kept unless the commit surely failed."""
        self._in_doubt.update(locations)
        try:
            yield
        except (CommitFailedException, ValidationException, PuffinIndexError, OSError, DBAPIError) as error:
            # All files are written before the catalog is asked, so an error of the file system precedes the commit. A
            # database that answers with an error has rolled back. A lost connection leaves the outcome open.
            if not isinstance(error, RequestException) and not getattr(error, "connection_invalidated", False):
                self._in_doubt.clear()
            raise
        self._in_doubt.clear()

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            return
        try:
            self._delete_uncommitted()
        except PASSING_ERRORS as error:
            # The job itself says that it failed.
            _log.info("segments of a failed job are left to `expire`: %s", reason_of(error))

    def _delete_uncommitted(self) -> None:
        listed = list_stored_files(self._index_table.io, segments_folder(self._index_table))
        own = [file for file in listed if file.name.startswith(self.job_id)]
        surplus = [file for file in own if file.location not in self._in_doubt]
        # The catalog may not answer, so it is asked only if there is something to delete.
        committed: set[str] = set()
        # The index may have been dropped meanwhile.
        with suppress(NotFoundError):
            if surplus:
                refresh_index_table(self._index_table)
                committed.update(read_entries(self._index_table)["segment"].to_pylist())
        delete_files(self._index_table.io, [file for file in surplus if file.location not in committed])
