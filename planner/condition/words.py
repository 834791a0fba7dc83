"""Which words a text must contain for a test of the text to hold; what words are, says `puffin_index.keys.words`.

A pattern says some stretches of the text letter by letter. A run of letters and digits within such a stretch is a word
of the text; at the end of a stretch, it may be a part of a longer word. Upper and lower case change no boundary of
words: no letter becomes a separator, or the other way round.
"""

import re
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.condition.places import prefix_end
from planner.condition.tree.nodes import ValueOperator, ValueTest
from planner.condition.value_tests import RLIKE_TOKEN, flags_of
from puffin_index.keys.leaf import RangeTest, SetTest
from puffin_index.keys.sorted_keys import bytes_of_keys
from puffin_index.keys.words import runs_of
from puffin_index.storage.arrays import Ints, distinct, ramps

Stretch: TypeAlias = tuple[str, bool, bool]
"""A part of a text, whether the text begins with it, and whether the text ends with it."""

WordTest: TypeAlias = SetTest | RangeTest | ValueTest
"""What one of the words satisfies: by its key, or decided word by word."""

_REPLACED: Final = "\ufffd"
"""Spark's patterns see this character in place of bytes that are no text."""


_OF_ASCII: Final = (
    0xDF,
    0x130,
    0x131,
    0x149,
    0x17F,
    0x1F0,
    *range(0x1E96, 0x1E9B),
    0x1E9E,
    0x212A,
    *range(0xFB00, 0xFB07),
)
"""The letters beyond ASCII whose upper or lower case has letters of ASCII."""

_BECOME_ASCII: Final = "|".join("".join(f"\\x{byte:02x}" for byte in chr(letter).encode()) for letter in _OF_ASCII)
"""Finds them in bytes."""


_FEW_FOUND: Final = 10_000
"""Where a run is found as often, Arrow searches word by word, which takes the same time for all runs."""


def word_tests(test: ValueTest) -> list[WordTest]:
    """Return tests each of which a word of the text satisfies, for every text that satisfies a test."""
    text = str(test.literals[0])
    if test.negated or test.function == "length" or len(test.literals) != 1 or _REPLACED in text:
        return []
    match test.operator:
        case "LIKE" | "ILIKE":
            stretches = _stretches_of_like(text, test.escape)
        case "RLIKE":
            stretches = _stretches_of_rlike(text)
        case "=":
            stretches = [(text, True, True)]
        case _:
            return []
    found: dict[WordTest, None] = {}
    for stretch, begins, ends in stretches:
        for run, is_first, is_last in runs_of(stretch.encode()):
            found[_word_test(run, is_first and not begins, is_last and not ends, test)] = None
    return [*found]


def _word_test(run: bytes, may_begin_before: bool, may_end_after: bool, test: ValueTest) -> WordTest:
    is_folded = _is_folded(test)
    if is_folded or may_begin_before:
        # A run has no wildcard and no escape.
        pattern = f"{'%' if may_begin_before else ''}{run.decode()}{'%' if may_end_after else ''}"
        operator: ValueOperator = "ILIKE" if test.operator == "ILIKE" else "LIKE"
        return ValueTest(test.function if is_folded else None, operator, (pattern,))
    return RangeTest(run, prefix_end(run), high_inclusive=False) if may_end_after else SetTest((run,))


def satisfying(test: ValueTest, words: pa.LargeBinaryArray) -> Ints:
    """Return the places of the words that satisfy a test of `word_tests`, or may."""
    pattern = str(test.literals[0])
    if not _is_folded(test):
        return _search(words, pattern)
    if not pattern.isascii():
        return np.arange(len(words))
    data, offsets = bytes_of_keys(words)
    # Only capital letters are less than 26 above A, as bytes have no sign.
    folded = data | ((data - np.uint8(ord("A")) < 26).view(np.uint8) << 5)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(folded)]
    others = distinct(np.searchsorted(offsets, np.flatnonzero(data > 127), "right") - 1)
    found = np.zeros(len(words), np.bool_)
    found[others] = flags_of(pc.match_substring_regex(words.take(pa.array(others)), _BECOME_ASCII))
    found[_search(pa.Array.from_buffers(pa.large_binary(), len(words), buffers), pattern.lower())] = True
    return np.flatnonzero(found)


def _search(words: pa.LargeBinaryArray, pattern: str) -> Ints:
    """Search for the bytes of a run. Bytes that are no text have no letter that their bytes do not have."""
    run = pattern.strip("%").encode()
    data, offsets = bytes_of_keys(words)
    begins = np.fromiter((one.start() for one in islice(re.finditer(re.escape(run), data.data), _FEW_FOUND)), np.int64)
    if len(begins) == _FEW_FOUND:
        places = np.arange(len(words))
    else:
        # A search of all bytes at once finds runs across words, too, in place of those that overlap with these.
        firsts = np.searchsorted(offsets, begins, "right") - 1
        lasts = np.searchsorted(offsets, begins + len(run) - 1, "right") - 1
        places = np.unique(ramps(firsts, lasts - firsts + 1))
        words = words.take(pa.array(places))
    match pattern.startswith("%"), pattern.endswith("%"):
        case True, True:
            found = pc.match_substring(words, run)
        case True, False:
            found = pc.ends_with(words, run)
        case False, True:
            found = pc.starts_with(words, run)
        case _:
            found = pc.equal(words, pa.scalar(run, pa.large_binary()))
    return places[flags_of(found)]


def _is_folded(test: ValueTest) -> bool:
    return test.operator == "ILIKE" or test.function in ("upper", "lower")


def _stretches_of_like(pattern: str, escape: str) -> list[Stretch]:
    pieces: list[str] = [""]
    for part in re.findall(rf"{re.escape(escape)}.|.", pattern, re.DOTALL):
        if part in ("%", "_"):
            pieces.append("")
        else:
            pieces[-1] += part[-1]
    last = len(pieces) - 1
    return [(piece, number == 0, number == last) for number, piece in enumerate(pieces)]


def _stretches_of_rlike(pattern: str) -> list[Stretch]:
    """Return what an expression finds in any case: letters outside of groups that no quantifier repeats."""
    tokens = [*RLIKE_TOKEN.finditer(pattern)]
    stretches, depth, begins = list[Stretch](), 0, False
    letters = ""
    for number, token in enumerate(tokens):
        kind, following = token.lastgroup, tokens[number + 1].lastgroup if number + 1 < len(tokens) else None
        if token[0] == "|" and not depth:
            return []
        is_letter = kind in ("plain", "escaped") and not depth and following != "quantifier"
        if is_letter:
            letters += token[0][-1]
            continue
        if letters:
            stretches.append((letters, begins, token[0] == "$" and not depth))
        letters, begins = "", token[0] == "^" and number == 0
        depth += (kind == "open") - (kind == "close")
    return [*stretches, (letters, begins, False)] if letters else stretches
