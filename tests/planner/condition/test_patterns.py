"""Patterns of LIKE and RLIKE as RE2's expressions; those that Java may read in another way have none."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from planner.condition.value_tests import like_regex, rlike_regex, split_like


def found(regex: str, texts: list[str]) -> list[str]:
    flags = pc.match_substring_regex(pa.array(texts), regex).to_pylist()
    return [text for text, flag in zip(texts, flags, strict=True) if flag]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a_c", ["abc", "a\nc", "a😀c"]),
        ("%c", ["abc", "a\nc", "a😀c", "ac", "xabc"]),
        (r"a\%", ["a%"]),
        ("a.c", []),
        ("ä%", ["ä\0"]),
        ("ä\0", ["ä\0"]),
        ("", [""]),
    ],
)
def test_like_matches_whole_texts(pattern: str, expected: list[str]) -> None:
    texts = ["", "abc", "a\nc", "a😀c", "ac", "xabc", "a%", "ä\0"]
    assert sorted(found(like_regex(pattern, "\\"), texts)) == sorted(expected)


def test_an_escape_may_be_any_character() -> None:
    assert found(like_regex(".%.._", "."), ["%.x", "%.", ".%.x"]) == ["%.x"]
    assert split_like("ab.%c%d", ".") == ("ab%c", "%d")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["", "a", "aab", "a-c", "1_]", "b.c"]),
        ("^a+b?$", ["a", "aab"]),
        ("(a|1){1,2}[_b]", ["aab", "1_]"]),
        (r"\.|\]", ["1_]", "b.c"]),
        (r"[\]\-]", ["a-c", "1_]"]),
        (r"^[^a-c\d]*$", [""]),
        (r"^\w{3}", ["aab"]),
        ("a||x", ["", "a", "aab", "a-c", "1_]", "b.c"]),
        ("b.c", ["b.c"]),
        (r"^((a*b|c)+|(1)?_)\]?$", ["aab", "1_]"]),
        ("(a|^)(b*)", ["", "a", "aab", "a-c", "1_]", "b.c"]),
    ],
)
def test_rlike_finds_a_match_anywhere(pattern: str, expected: list[str]) -> None:
    regex = rlike_regex(pattern)
    assert regex is not None
    assert found(regex, ["", "a", "aab", "a-c", "1_]", "b.c"]) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"\s", r"\b", r"\W", r"\1", r"\Q", r"\p{L}", r"\x41", "a\\"),
        *("a*?", "a*+", "a**", "*a", "^*", "|*", "(*a)", "a{,3}", "a{3,2}", "a{1001}", "a{", "a}", "]"),
        *("(?i)a", "(?:a)", "(a", "a)", "[]a]", "[^]", "[a&&b]", "[[a]]", "[a-]", "[z-a]", "[!-/]", "[", "[a\\s]"),
        *("(a|^)+", "(a*)*", "(a?b?){2}", "(^|b)?", "((a|)b*)+", "($)*", "()*", "((a*)){2}", "(a{0,2}|b)*"),
        *("ä", "[ä]", "a\n", "😀"),
    ],
)
def test_what_java_may_read_in_another_way_has_no_expression(pattern: str) -> None:
    assert rlike_regex(pattern) is None
