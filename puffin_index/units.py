"""Durations and sizes as users write them."""

import re
from datetime import timedelta

from puffin_index.errors import UnsupportedError

_DURATION = re.compile(r"(\d+)\s*([smhd])")
_SIZE = re.compile(r"(\d{1,18})\s*([kmg]?)(?:i?b|bytes)?")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_duration(text: str) -> timedelta:
    """Read a duration such as `3d`, `12h`, `30m` or `0s`, a century at most, or raise UnsupportedError."""
    parts = _DURATION.fullmatch(text.strip().lower())
    if parts is None:
        raise UnsupportedError(f"{text!r} is not a duration such as 3d, 12h, 30m or 0s")
    return min(timedelta(**{_UNITS[parts[2]]: min(int(parts[1]), 10**8)}), timedelta(days=36_500))


def parse_size(text: str) -> int:
    """Read a size of at least 1 byte, in binary units, such as `256MiB`, or raise UnsupportedError."""
    parts = _SIZE.fullmatch(text.strip().lower())
    if parts is None or int(parts[1]) == 0:
        raise UnsupportedError(f"{text!r} is not a size such as 256MiB")
    return int(parts[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[parts[2]]
