r"""Patterns of LIKE and RLIKE as regular expressions of RE2, where these match the same texts as Spark's.

Spark hands RLIKE to Java's regular expressions. In the part of both languages that `rlike_regex` takes, Java and RE2
find a match in the same texts, unless a text holds a line terminator: Java's `.` and `$` know more of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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


@dataclass(slots=True)
class _Group:
    """A group that is being read, or the pattern as a whole.

    Attributes:
        atom_is_empty: Whether the latest atom may match nothing; None if a quantifier cannot stand behind.
        branch_is_empty: Whether the latest branch may match nothing, up to the latest atom.
        is_empty: Whether one of the branches before may match nothing.
    """

    atom_is_empty: bool | None = None
    branch_is_empty: bool = True
    is_empty: bool = False

    def end_atom(self, next_is_empty: bool | None = None) -> None:
        """Go on to the next atom."""
        self.branch_is_empty &= self.atom_is_empty is not False
        self.atom_is_empty = next_is_empty

    def end_branch(self) -> None:
        """Go on to the next branch."""
        self.end_atom()
        self.is_empty |= self.branch_is_empty
        self.branch_is_empty = True


def rlike_regex(pattern: str) -> str | None:
    r"""Return a regular expression that finds what a pattern of RLIKE finds in texts without line terminators.

    Taken are printable ASCII characters, `.`, `*`, `+`, `?`, `{n,m}`, `|`, groups, `^`, `$`, classes of characters and
    ranges, `\d`, `\w`, and a backslash before punctuation. A group that may match nothing is not repeated: Java
    overlooks matches of `(a|^)+`.

    Returns:
        The expression; None if Java might read the pattern in another way.
    """
    position = 0
    groups = [_Group()]
    pieces: list[str] = []
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None or not _take(token, groups):
            return None
        pieces.append(_quoted(token[0][-1]) if token.lastgroup in ("escaped", "plain") else token[0])
        position = token.end()
    return "".join(pieces) if len(groups) == 1 else None


def _take(token: re.Match[str], groups: list[_Group]) -> bool:
    """Take the next token of a pattern; False if Java and RE2 may differ."""
    group = groups[-1]
    match token.lastgroup:
        case "open":
            groups.append(_Group())
        case "close" if len(groups) > 1:
            groups.pop().end_branch()
            groups[-1].end_atom(group.is_empty)
        case "branch":
            group.end_branch()
        case "anchor":
            group.end_atom()
        case "quantifier" if group.atom_is_empty is False and _is_sound(token):
            group.atom_is_empty = token[0] in "*?" or (token["least"] is not None and int(token["least"]) == 0)
            group.end_atom()
        case "class" if not _has_sound_ranges(token[0]):
            return False
        case "class" | "escaped" | "any" | "plain":
            group.end_atom(next_is_empty=False)
        case _:
            return False
    return True


def _is_sound(quantifier: re.Match[str]) -> bool:
    least, most = int(quantifier["least"] or 0), int(quantifier["most"] or quantifier["least"] or 0)
    return least <= most <= _MOST_REPEATS


def _has_sound_ranges(characters: str) -> bool:
    ranges = [(low, high) for low, high in _MEMBER.findall(characters[1:-1]) if high]
    return all(low.isalnum() and low <= high for low, high in ranges)
