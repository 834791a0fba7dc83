r"""Patterns of LIKE and RLIKE as regular expressions of RE2, where these match the same texts as Spark's.

Spark hands RLIKE to Java's regular expressions. In the part of both languages that `rlike_regex` takes, Java and RE2
find a match in the same texts, unless a text holds a line terminator: Java's `.` and `$` know more of them.
"""

from __future__ import annotations

import re

_WILDCARDS = {"%": ".*", "_": "."}

_MOST_REPEATS = 100
"""RE2 refuses a thousand; a nested repetition multiplies."""

_TOKEN = re.compile(
    r"""(?P<quantifier>[*+?]|\{(?P<least>[0-9]{1,3})(?P<comma>,)?(?P<most>[0-9]{1,3})?\})
    |(?P<open>\((?!\?)) | (?P<close>\)) | (?P<branch>\|) | (?P<anchor>[\^$])
    |(?P<class>\[\^?(?:\\[dw] | \\[!-/:-@[-`{-~] | [ -~](?<![\[\]\\^&-])(?:-(?:[0-9A-Za-z]))?)+\])
    |(?P<escaped>\\[!-/:-@[-`{-~]) | (?P<any>\.|\\[dw]) | (?P<plain>[ -~](?<![\\{}\[\]]))""",
    re.VERBOSE,
)
_MEMBER = re.compile(r"\\.|(.)-(.)|.")


def split_like(pattern: str, escape: str) -> tuple[str, str]:
    """Split a pattern at its first wildcard: the unescaped text before, and the rest as written, once it is checked.

    Raises:
        ValueError: If the pattern is malformed; the message says what was expected.
    """
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
    ranges, `\d`, `\w`, and a backslash before punctuation.

    Returns:
        The expression; None if Java might read the pattern in another way.
    """
    position, open_groups, can_repeat = 0, 0, False
    pieces: list[str] = []
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None or not _is_sound(token, can_repeat, open_groups):
            return None
        open_groups += (token.lastgroup == "open") - (token.lastgroup == "close")
        can_repeat = token.lastgroup in ("close", "class", "escaped", "any", "plain")
        pieces.append(_quoted(token[0][-1]) if token.lastgroup in ("escaped", "plain") else token[0])
        position = token.end()
    return None if open_groups else "".join(pieces)


def _is_sound(token: re.Match[str], can_repeat: bool, open_groups: int) -> bool:
    match token.lastgroup:
        case "quantifier":
            least, most = int(token["least"] or 0), int(token["most"] or token["least"] or 0)
            return can_repeat and least <= most <= _MOST_REPEATS
        case "close":
            return open_groups > 0
        case "class":
            ranges = [(low, high) for low, high in _MEMBER.findall(token[0][1:-1]) if high]
            return all(low.isalnum() and low <= high for low, high in ranges)
        case _:
            return True
