r"""Literals, and how those of Spark SQL are written.

| SQL | type | value |
| --- | --- | --- |
| `5`, `5L`, `5S`, `5Y` | long | within 64 bits; wider plain integers are decimals |
| `1.5`, `5BD`, `1e3BD` | decimal | all digits kept, scale 0 or more, at most 38 digits |
| `1e3`, `1.5D` | double | the nearest double |
| `1.1F` | float | the nearest float32, as a double |
| `'it''s'`, `"x"`, `r'\d'` | string | unescaped; `\%` and `\_` keep their backslash |
| `X'1F'` | binary | the bytes |
| `TRUE` | boolean | |
| `DATE '...'` | date | days since 1970-01-01 |
| `TIMESTAMP_NTZ '...'` | timestamp | microseconds on the wall clock |
| `TIMESTAMP '...'` | timestamptz | microseconds UTC; without a zone, by the clock of the session |
| `TIME '...'` | time | microseconds since midnight |

A text that depends on the clock or on a time zone database (`DATE 'today'`, `TIMESTAMP '12:00:00'`, `... Europe/Paris`)
has no literal. A text that Spark refuses raises ValueError, saying what was expected. All rules are those of Spark 4.1
with default settings, tried on a running Spark.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

MAX_DECIMAL_DIGITS = 38
_EPOCH = datetime(1970, 1, 1)
MICROS_A_DAY = 86_400_000_000
_INTEGER_BITS = {"": 64, "L": 64, "S": 16, "Y": 8}
# As Spark prints them: the shortest decimals that give these numbers.
_GREATEST_DOUBLE = Decimal(repr(float(np.finfo(np.float64).max)))
_GREATEST_FLOAT = Decimal(repr(float(np.finfo(np.float32).max)))


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal: its type by Iceberg's name, without the digits of decimals and with `long` for `int`; and its value.

    The value of a string is its bytes, which in Spark need not be valid UTF-8.
    """

    type: str
    value: Any


def text_literal(text: str) -> Literal:
    """Make the literal of a text. Raises UnicodeEncodeError if the text holds half of a surrogate pair."""
    return Literal("string", text.encode())


def instant_at(wall_clock: int, zone: tzinfo) -> Literal | None:
    """Return the instant of a wall clock, in microseconds since 1970-01-01 00:00:00 on that clock, as Spark does.

    Where a clock is put back, the earlier of two instants; where it is put forward, the skipped time goes on from
    before. That is `java.time`'s rule, and Python's for `fold=0`. None if Java's time zone database may say otherwise
    than Python's.
    """
    # What databases have of the time before 1970 depends on how they were built. Clocks show it for a day more.
    if wall_clock < MICROS_A_DAY and zone.utcoffset(None) is None:
        return None
    wall = (_EPOCH + timedelta(microseconds=wall_clock)).replace(tzinfo=zone, fold=0)
    return Literal("timestamptz", (wall - _EPOCH.replace(tzinfo=UTC)) // timedelta(microseconds=1))


_STRING = re.compile(
    r"""[rR](?:'(?P<raw>[^']*)'|"(?P<raw_double>[^"]*)")|(?P<quote>['"])(?P<plain>(?:(?!(?P=quote))[^\\]|\\.|(?P=quote){2})*)(?P=quote)""",
    re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\([01][0-7]{2})|\\(.)|(?P<quote>['\"])(?P=quote)", re.DOTALL
)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_SURROGATES = re.compile("[\ud800-\udfff]+")


def string_value(text: str) -> str:
    """Return what one or more adjacent string literals say together."""
    joined = "".join(_unescape(match) for match in _STRING.finditer(text))
    return _SURROGATES.sub(_pair_surrogates, joined)


def _unescape(string: re.Match[str]) -> str:
    raw = string["raw"] if string["raw"] is not None else string["raw_double"]
    if raw is not None:
        return raw
    quote, plain = string["quote"], string["plain"]
    if "\\" not in plain and quote not in plain:
        return str(plain)

    def replace(escape: re.Match[str]) -> str:
        if escape["quote"] is not None:
            return quote if escape["quote"] == quote else escape[0]
        if escape[4] is not None:
            return _ESCAPED.get(escape[4], escape[4])
        code_point = int(escape[1] or escape[2] or escape[3], 8 if escape[3] else 16)
        if code_point > 0x10FFFF:
            raise ValueError(r"a code point of at most \U0010FFFF")
        return chr(code_point)

    return _ESCAPE.sub(replace, plain)


def _pair_surrogates(run: re.Match[str]) -> str:
    # Spark's strings are UTF-16 until they are stored as UTF-8: pairs are one character, a lone half becomes "?".
    paired = run[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return paired.replace("\ufffd", "?")


def number_literal(text: str) -> Literal:
    """Make the literal of a number as written, sign and suffix included."""
    digits = text.rstrip("lLsSyYdDfFbB")
    suffix = text[len(digits) :].upper()
    # Nearly all numbers are short plain integers, and IN lists can be very long.
    whole = digits.lstrip("+-").isdigit()
    if whole and not suffix and len(text) < 19:
        return Literal("long", int(text))
    try:
        exact = Decimal(digits)
    except ArithmeticError as error:
        raise ValueError("a number with a smaller exponent") from error
    if whole and suffix in _INTEGER_BITS:
        bits = _INTEGER_BITS[suffix]
        if -(2 ** (bits - 1)) <= exact < 2 ** (bits - 1):
            return Literal("long", int(exact))
        if suffix:
            raise ValueError(f"a whole number of {bits} bits")
    if suffix == "BD" or not (suffix or "e" in digits.lower()):
        return _decimal_literal(exact)
    if suffix == "F":
        if exact.copy_abs() > _GREATEST_FLOAT:
            raise ValueError("a number within the range of a float")
        # By way of a double, the number might be rounded twice.
        return Literal("float", pa.scalar(digits).cast(pa.float32()).as_py())
    if exact.copy_abs() > _GREATEST_DOUBLE:
        raise ValueError("a number within the range of a double")
    return Literal("double", float(exact))


def _decimal_literal(exact: Decimal) -> Literal:
    _, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int), "a finite number has an exponent"
    if max(len(digits), -exponent, exact.adjusted() + 1 if exact else 0) > MAX_DECIMAL_DIGITS:
        raise ValueError(f"a number of at most {MAX_DECIMAL_DIGITS} digits")
    # 1e3BD is decimal(4, 0): Spark has no negative scale.
    return Literal("decimal", Decimal(int(exact)) if exponent > 0 else exact)


def binary_literal(text: str) -> Literal:
    """Make the literal of the hexadecimal digits in `X'...'`; an odd one at the front stands alone."""
    if not re.fullmatch(r"[0-9a-fA-F]*", text):
        raise ValueError("hexadecimal digits")
    return Literal("binary", bytes.fromhex("0" * (len(text) % 2) + text))


# What depends on the clock, and years that Python's dates lack.
_SPECIAL = re.compile(
    r"(?:epoch|now|today|yesterday|tomorrow)\b.*|T?[0-9]{1,2}:.*|[+-]?[0-9]{5,7}(?:-.*)?|-[0-9]{4}(?:-.*)?|\+?0000(?:-.*)?",
    re.IGNORECASE,
)
_DAY = r"\+?([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_DATE = re.compile(_DAY + r"(?:[ T].*)?)?)?", re.DOTALL)
_TIME = r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?"
_TIMESTAMP = re.compile(_DAY + _TIME + r"\s*(?P<zone>[^0-9\s.:].*)?)?)?)?)?)?", re.DOTALL)
_TIME_OF_DAY = re.compile(
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{1,6}))?)?"
)
_OFFSET = re.compile(
    r"Z|(?=.)(?:UTC|GMT|UT)?(?:(?P<sign>[+-])(?:(?P<h>[0-9]{1,2})(?::(?P<m>[0-9]{1,2})(?::(?P<s>[0-9]{2}))?)?|(?P<hhmm>[0-9]{4})))?"
)
# What Java's `trim` takes off: all up to the space.
_BLANKS = "".join(map(chr, range(33)))


def date_literal(text: str) -> Literal | None:
    """Make the literal of `DATE 'text'`; None if it depends on the clock or lies outside of the years 1 to 9999."""
    text = text.strip(_BLANKS)
    if _SPECIAL.fullmatch(text):
        return None
    match = _DATE.fullmatch(text)
    with suppress(ValueError):
        if match:
            day = date(*(int(part or 1) for part in match.groups()))
            return Literal("date", (day - _EPOCH.date()).days)
    raise ValueError("a date such as '2024-05-31'")


def timestamp_literal(type_name: str, text: str, zone: tzinfo) -> Literal | None:
    """Make the literal of a `TIMESTAMP`, `TIMESTAMP_LTZ` or `TIMESTAMP_NTZ`; None if only Spark knows it."""
    text = text.strip(_BLANKS)
    if _SPECIAL.fullmatch(text):
        return None
    match = _TIMESTAMP.fullmatch(text)
    wall: datetime | None = None
    with suppress(ValueError):
        if match:
            year, month, day = (int(part or 1) for part in match.groups()[:3])
            hour, minute, second = (int(part or 0) for part in match.groups()[3:6])
            # Digits beyond the microseconds are cut off, not rounded.
            wall = datetime(year, month, day, hour, minute, second, int(((match[7] or "") + "000000")[:6]))
    if match is None or wall is None:
        raise ValueError("a timestamp such as '2024-05-31 23:59:59.999999'")
    micros = (wall - _EPOCH) // timedelta(microseconds=1)
    if type_name == "TIMESTAMP_NTZ":
        # Spark drops a zone here.
        return Literal("timestamp", micros)
    if match["zone"] is None:
        return instant_at(micros, zone)
    offset = offset_micros(match["zone"])
    return None if offset is None else Literal("timestamptz", micros - offset)


def has_zone(text: str) -> bool:
    """Whether a text that is a timestamp says its time zone."""
    match = _TIMESTAMP.fullmatch(text.strip(_BLANKS))
    return match is not None and match["zone"] is not None


def time_literal(text: str) -> Literal | None:
    """Make the literal of `TIME 'text'`: hours, minutes, and seconds if any; None for other forms."""
    match = _TIME_OF_DAY.fullmatch(text.strip(_BLANKS))
    if match is None:
        return None
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("a time such as '23:59:59.999999'")
    micros = int(((match["fraction"] or "") + "000000")[:6])
    return Literal("time", ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros)


def offset_micros(zone: str) -> int | None:
    """Return what a time zone such as `+05:30`, `UTC-3` or `Z` is ahead of UTC; None for other time zones."""
    match = _OFFSET.fullmatch(zone.strip())
    if match is None:
        return None
    packed = match["hhmm"] or "0000"
    hours, minutes, seconds = int(match["h"] or packed[:2]), int(match["m"] or packed[2:]), int(match["s"] or 0)
    total = hours * 3600 + minutes * 60 + seconds
    if total > 18 * 3600 or max(minutes, seconds) > 59:
        return None
    return (-total if match["sign"] == "-" else total) * 1_000_000
