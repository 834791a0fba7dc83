"""A `ValueTest` decided for values of its column: exactly as Spark decides, or openly uncertain.

Uncertain are upper and lower case of text that is not ASCII (Java's case mappings are others than Arrow's), RLIKE of
text with line terminators, and any test of bytes that are not UTF-8. Patterns become regular expressions of RE2.

Spark hands RLIKE to Java's regular expressions. In the part of both languages that `rlike_regex` takes, Java and RE2
find a match in the same texts, unless a text holds a line terminator: Java's `.` and `$` know more of them.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.condition.literals import MICROS_A_DAY
from planner.condition.tree.nodes import PATTERN_OPERATORS, ValueTest
from puffin_index.keys.columns import Column, plain_keys
from puffin_index.keys.leaf import RangeTest
from puffin_index.keys.value_types import ValueType
from puffin_index.storage.arrays import Flags, Ints

_WILDCARDS = {"%": ".*", "_": "."}

# RE2 takes up to a thousand repeats, but then searches a text for milliseconds.
RLIKE_TOKEN = re.compile(
    r"""(?P<quantifier>[*+?]|\{(?:[0-9]{1,2}|100)(?:,(?:[0-9]{1,2}|100)?)?\})
    |(?P<open>\((?!\?)) | (?P<close>\)) | (?P<zero>[|^$])
    |(?P<class>\[\^?(?:[0-9A-Za-z]-[0-9A-Za-z] | \\[dw] | \\[!-/:-@[-`{-~] | [ -~](?<![\[\]\\^&-]))+\])
    |(?P<escaped>\\[!-/:-@[-`{-~]) | (?P<any>\.|\\[dw]) | (?P<plain>[ -~](?<![\\{}\[\]]))""",
    re.VERBOSE,
)


def split_like(pattern: str, escape: str) -> tuple[str, str]:
    """Split a pattern at its first wildcard: unescaped text before, the rest as written; or raise ValueError."""
    prefix: list[str] = []
    rest = ""
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            character = pattern[position : position + 1]
            if character not in ("%", "_", escape):
                raise ValueError(f"a pattern where {escape!r} stands before '%', '_' or itself only")
        elif character in "%_" and not rest:
            rest = pattern[position:]
        if not rest:
            prefix.append(character)
        position += 1
    return "".join(prefix), rest


def like_regex(pattern: str, escape: str) -> str:
    """Return the regular expression that finds the texts which a pattern of LIKE matches."""
    parts = re.findall(rf"{re.escape(escape)}.|.", pattern, re.DOTALL)
    body = "".join(_quoted(part[1]) if len(part) == 2 else _WILDCARDS.get(part) or _quoted(part) for part in parts)
    return f"(?s)\\A(?:{body})\\z"


def _quoted(character: str) -> str:
    """Quote a character for RE2, which takes no backslash before letters outside of ASCII."""
    return re.escape(character) if character.isascii() and character != "\0" else f"\\x{{{ord(character):x}}}"


def rlike_regex(pattern: str) -> str | None:
    r"""Return a regular expression that finds what a pattern of RLIKE finds in texts without line terminators.

    Taken are printable ASCII characters, `.`, `*`, `+`, `?`, `{n,m}`, `|`, groups, `^`, `$`, classes of characters and
    ranges, `\d`, `\w`, and a backslash before punctuation. A group that may match nothing is not repeated: Java
    overlooks matches of `(a|^)+`. None if Java might read the pattern in another way.
    """
    position = 0
    pieces: list[str] = []
    opened: list[int] = []
    atom: int | None = None  # where what a quantifier may repeat begins
    while position < len(pattern):
        token = RLIKE_TOKEN.match(pattern, position)
        if token is None:
            return None
        match token.lastgroup:
            case "open":
                opened.append(len(pieces))
                atom = None
            case "close" if opened:
                atom = opened.pop()
            case "quantifier" if atom is not None and _matches_nothing("".join(pieces[atom:])) is False:
                atom = None
            case "zero":
                atom = None
            case "class" | "escaped" | "any" | "plain":
                atom = len(pieces)
            case _:
                return None
        pieces.append(_quoted(token[0][-1]) if token.lastgroup in ("escaped", "plain") else token[0])
        position = token.end()
    regex = "".join(pieces)
    return None if opened or _matches_nothing(regex) is None else regex


def _matches_nothing(regex: str) -> bool | None:
    """Whether an expression matches the empty text; None if RE2 does not take the expression."""
    try:
        return bool(pc.match_substring_regex(pa.array([""]), regex)[0].as_py())
    except pa.ArrowInvalid:
        return None


_MOST_YEARS = 290_000
"""Timestamps of 64 bits reach a little farther."""

# Arrow takes a pattern over binary values byte by byte.
_UTF8 = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
_LINE_TERMINATORS = r"[\n\r\x{85}\x{2028}\x{2029}]"

_COMPARISONS: Final[dict[str, Callable[..., pa.Array]]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
# Arrow's `ascii_lower` and `ascii_upper` read foreign memory where a part of an array was cast (seen in 26.0).
_TEXT_FUNCTIONS: Final[dict[str, Callable[..., pa.Array]]] = {
    "upper": pc.utf8_upper,
    "lower": pc.utf8_lower,
    "trim": partial(pc.utf8_trim, characters=" "),
    "ltrim": partial(pc.utf8_ltrim, characters=" "),
    "rtrim": partial(pc.utf8_rtrim, characters=" "),
    "length": pc.utf8_length,
}


def takes(test: ValueTest, value_type: ValueType | None) -> bool:
    """Whether values of a type are tested as they are: Spark converts none first, and RE2 takes the pattern."""
    takes_text = test.function is None or test.function in _TEXT_FUNCTIONS
    if value_type is None or value_type.name not in (("string",) if takes_text else ("date", "timestamp")):
        return False
    return test.operator not in PATTERN_OPERATORS or _matches_nothing(_regex(test)) is not None


def year_range(test: ValueTest, value_type: ValueType) -> RangeTest | None:
    """Return a comparison of a year as a range of keys, whatever values the column has; None for other tests."""
    if test.function != "year" or test.operator not in _COMPARISONS:
        return None
    year = int(test.literals[0])
    if abs(year) > _MOST_YEARS:
        return None
    days = np.array([year - 1970, year - 1969]).astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64)
    first, following = (days * (MICROS_A_DAY if value_type.name == "timestamp" else 1)).tolist()
    low = {"=": first, ">=": first, ">": following}.get(test.operator)
    high = {"=": following, "<=": following, "<": first}.get(test.operator)
    return RangeTest(low, high, high_inclusive=high is None, negated=test.negated)


def verdicts(test: ValueTest, column: Column) -> tuple[Flags, Flags]:
    """Say which rows of a column, whose type the test `takes`, satisfy it or may; and which are certain, as NULL is."""
    valid = column.is_valid
    if isinstance(column.keys, np.ndarray):
        satisfied = _compare(test, pa.array(_part_of_date(test, column)), pa.int64())
        certain = np.ones(column.row_count, np.bool_)
    else:
        satisfied, certain = _decide_text(test, plain_keys(column))
        certain = certain | ~valid
    return valid & (~certain | (satisfied != test.negated)), certain


def _part_of_date(test: ValueTest, column: Column) -> Ints:
    """A part of dates of the proleptic Gregorian calendar, whatever the year. Arrow knows years of 16 bits only."""
    days = column.int_keys.astype(np.int64)
    if column.value_type.name == "timestamp":
        days = days // MICROS_A_DAY
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    number = months.astype(np.int64)
    match test.function:
        case "year":
            return number // 12 + 1970
        case "month":
            return number % 12 + 1
        case "quarter":
            return number % 12 // 3 + 1
        case _:
            first = months.astype("datetime64[D]")
            return np.asarray(dates - first).astype(np.int64) + 1


def _compare(test: ValueTest, values: pa.Array, value_type: pa.DataType) -> Flags:
    literals = pa.array(test.literals, value_type)
    if test.operator == "IN":
        return flags_of(pc.is_in(values, literals))
    return flags_of(_COMPARISONS[test.operator](values, literals[0]))


def _decide_text(test: ValueTest, keys: pa.LargeBinaryArray) -> tuple[Flags, Flags]:
    """Say which texts satisfy a test that is not negated, and for which of them that is certain."""
    text, certain = _decode(keys)
    if test.function in ("upper", "lower") or test.operator == "ILIKE":
        certain &= flags_of(pc.string_is_ascii(text))
    if test.operator == "RLIKE":
        certain &= ~flags_of(pc.match_substring_regex(text, _LINE_TERMINATORS))
    result = _TEXT_FUNCTIONS[test.function](text) if test.function else text
    if test.function == "length":
        return _compare(test, result.cast(pa.int64()), pa.int64()), certain
    if test.operator in PATTERN_OPERATORS:
        folded = pc.utf8_lower(result) if test.operator == "ILIKE" else result
        return flags_of(pc.match_substring_regex(folded, _regex(test))), certain
    # Spark compares texts by their bytes.
    return _compare(test, result.cast(pa.large_binary()), pa.large_binary()), certain


def _decode(keys: pa.LargeBinaryArray) -> tuple[pa.LargeStringArray, Flags]:
    """Return keys as texts, NULL where the bytes are not UTF-8; and where they are UTF-8."""
    try:
        return keys.cast(pa.large_string()), np.ones(len(keys), np.bool_)
    except pa.ArrowInvalid:
        is_text = pc.match_substring_regex(keys, _UTF8)
        return pc.if_else(is_text, keys, pa.scalar(None, pa.large_binary())).cast(pa.large_string()), flags_of(is_text)


def _regex(test: ValueTest) -> str:
    pattern = str(test.literals[0])
    match test.operator:
        case "RLIKE":
            regex = rlike_regex(pattern)
            assert regex is not None, "the parser has read it"
            return regex
        case "ILIKE":
            return like_regex(pattern.lower(), test.escape)
        case _:
            return like_regex(pattern, test.escape)


def flags_of(flags: pa.Array | pa.ChunkedArray) -> Flags:
    """Return flags as numpy has them, NULL as false."""
    return np.array(pc.fill_null(flags, False).to_numpy(zero_copy_only=False), np.bool_)
