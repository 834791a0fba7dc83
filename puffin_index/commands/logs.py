"""Log lines on the standard error: plain text, or a JSON object a line for collectors."""

import json
import logging
import sys
import time
from typing import Final, Literal, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]

_TEXT: Final = "%(levelname)s %(name)s: %(message)s"
_TIMED: Final = f"%(asctime)s {_TEXT}"
OWN: Final = ["puffin_index"]
"""Packages whose errors are mistakes of ours; those above this one add themselves."""

QUIET: Final[list[str]] = []
"""Loggers that a user hears only with --verbose."""

_SAID_AGAIN: Final = "puffin_index.jobs.build_handle"
"""A service says why a pass failed, so that its background build need not say so as well."""


class _InUtc(logging.Formatter):
    """Writes times in UTC, to the millisecond."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class _Text(_InUtc):
    """Plain text: errors that other packages log themselves are one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows only where the error is a mistake of this package."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or record.name.partition(".")[0] in OWN:
            return super().format(record)
        # Not before an error: `--help` needs no more of the package than its commands' names.
        from puffin_index.jobs.log_lines import reason_of

        brief = logging.makeLogRecord(record.__dict__ | {"exc_info": None, "exc_text": None})
        return f"{super().format(brief)}: {reason_of(error)}"


class _Json(_InUtc):
    """One JSON object a line; the pairs of a structured line (`puffin_index.jobs.log_lines`) are its members."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        members: dict[str, object] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for argument in record.args if isinstance(record.args, tuple) else ():
            members |= getattr(argument, "members", {})
        if record.exc_info:
            members["traceback"] = self.formatException(record.exc_info)
        return json.dumps(members, default=str, ensure_ascii=False)


def configure_logs(log_format: LogFormat, *, verbose: bool) -> None:
    """Write log lines to the standard error: warnings, and what is done if that is wanted."""
    handler = logging.StreamHandler(sys.stderr)
    # What is done has times, a warning of a single command needs none.
    handler.setFormatter(_Json() if log_format == "json" else _Text(_TIMED) if verbose else _Text(_TEXT))
    if not verbose:
        handler.addFilter(lambda record: record.name not in QUIET)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


def show_progress() -> None:
    """Write what jobs do, also without --verbose, if somebody sees the standard error."""
    if sys.stderr.isatty():
        logging.getLogger("puffin_index.jobs").setLevel(logging.INFO)


def log_as_a_service() -> None:
    """Write what is done, with times, also without --verbose."""
    logging.getLogger("puffin_index").setLevel(logging.INFO)
    logging.getLogger(_SAID_AGAIN).setLevel(logging.CRITICAL)
    for handler in logging.getLogger().handlers:
        if not isinstance(handler.formatter, _Json):
            handler.setFormatter(_Text(_TIMED))
