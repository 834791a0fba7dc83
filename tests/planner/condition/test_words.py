"""Whatever text satisfies a search has the words that the search asks for."""

import re

import pyarrow as pa
from hypothesis import given, settings, strategies as st

from planner.condition.tree.nodes import ValueTest
from planner.condition.value_tests import takes, verdicts
from planner.condition.words import WordTest, satisfying, word_tests
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.leaf import RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from tests.conftest import amount

STRING = value_type_named("string")
LETTERS = "abB1 .%_\\é😀-"
TEXTS = st.text(st.sampled_from(LETTERS), max_size=10)
PIECES = ("a", "b", "B1", " ", ".", "é", "ab", "%", "%", "_", "\\%", "\\_", "\\\\")
PATTERNS = st.lists(st.sampled_from(PIECES), max_size=6)
PARTS = ("a", "b", "B1", " ", r"\.", "ab", ".", ".*", "a+", "b?", "(ab)", "(a|b)", "[ab]", "^", "$", "|", "b{2}")
EXPRESSIONS = st.lists(st.sampled_from(PARTS), max_size=5)
FUNCTIONS = st.sampled_from([None, "lower", "upper", "trim"])


def has_word(text: str, test: WordTest) -> bool:
    every = re.findall(rb"[0-9A-Za-z\x80-\xff]+", text.encode())
    match test:
        case SetTest(keys):
            return any(word in keys for word in every)
        case RangeTest(low, high):
            return any(low <= word and (high is None or word < high) for word in every)
        case ValueTest():
            return len(satisfying(test, pa.array(every, pa.large_binary()))) > 0


def check(test: ValueTest, texts: list[str]) -> None:
    if takes(test, STRING):
        matching, certain = verdicts(test, column_of(pa.array(texts, pa.string()), STRING))
        for text, satisfies in zip(texts, (matching & certain).tolist(), strict=True):
            assert not satisfies or all(has_word(text, word) for word in word_tests(test))


@settings(max_examples=amount(200, 20_000))
@given(PATTERNS, st.lists(TEXTS, min_size=1, max_size=20), FUNCTIONS, st.booleans())
def test_texts_that_are_like_a_pattern_have_its_words(
    pieces: list[str], texts: list[str], function: str | None, folds: bool
) -> None:
    # Some of the texts are made of the pattern.
    pattern = "".join(pieces)
    made = re.sub(r"\\(.)|%|_", lambda found: found[1] or texts[0][:3], pattern)
    every = [*texts, made, f"{texts[-1]}{made}", made.upper()]
    check(ValueTest(function, "ILIKE" if folds else "LIKE", (pattern,)), every)


@settings(max_examples=amount(200, 20_000))
@given(EXPRESSIONS, st.lists(TEXTS, min_size=1, max_size=20))
def test_texts_in_which_an_expression_is_found_have_its_words(pieces: list[str], texts: list[str]) -> None:
    pattern = "".join(pieces)
    made = re.sub(r"[\\+*?^$()]|\[.*?\]|\{.\}", "", pattern)
    check(ValueTest(None, "RLIKE", (pattern,)), [*texts, made, f"x {made}", f"{made}b", f" {made} "])


def test_the_letters_that_become_ascii_are_all_there_are() -> None:
    every = map(chr, [*range(0x80, 0xD800), *range(0xE000, 0x110000)])
    found = {one for one in every if any(letter.isascii() for letter in one.lower() + one.upper())}
    test = ValueTest("lower", "LIKE", ("%zz%",))
    assert len(satisfying(test, words_of(*found))) == len(found)
    assert not len(satisfying(test, words_of("é", "日本", "Σ")))


@settings(max_examples=amount(300, 20_000))
@given(
    st.lists(st.text("abABé", min_size=1, max_size=6), max_size=30),
    st.text("abA", min_size=1, max_size=4),
    st.sampled_from(["{}", "{}%", "%{}", "%{}%"]),
    st.booleans(),
    st.sampled_from([1, 1000]),
)
def test_words_are_found_by_one_search_of_all_as_by_searches_of_each(
    words: list[str], run: str, pattern: str, folds: bool, times: int
) -> None:
    """A run may reach from one word into the next, or be in ten thousand of them."""
    fold = str.lower if folds else str
    expression = re.compile(pattern.replace("%", ".*").format(fold(run)))
    expected = [place for place, word in enumerate(words * times) if expression.fullmatch(fold(word))]

    test = ValueTest(None, "ILIKE" if folds else "LIKE", (pattern.format(run),))
    sliced = words_of("b", *words * times, "a")[1:-1]
    assert satisfying(test, sliced).tolist() == expected


def words_of(*words: str) -> pa.LargeBinaryArray:
    return pa.array([word.encode() for word in words], pa.large_binary())


def test_words_within_a_pattern_are_whole_and_those_at_its_edges_may_go_on() -> None:
    assert word_tests(ValueTest(None, "LIKE", ("%one two three%",))) == [
        ValueTest(None, "LIKE", ("%one",)),
        SetTest((b"two",)),
        RangeTest(b"three", b"thref", high_inclusive=False),
    ]
    assert word_tests(ValueTest(None, "LIKE", ("one two",))) == [SetTest((b"one",)), SetTest((b"two",))]
    assert word_tests(ValueTest(None, "ILIKE", ("% One %",))) == [ValueTest(None, "ILIKE", ("One",))]
    assert word_tests(ValueTest(None, "RLIKE", ("^one (two|2) +three$",))) == [
        SetTest((b"one",)),
        ValueTest(None, "LIKE", ("%three",)),
    ]
    assert word_tests(ValueTest(None, "RLIKE", ("one|two",))) == []
    assert word_tests(ValueTest(None, "LIKE", ("%\ufffd one%",))) == []
