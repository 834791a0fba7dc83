"""Words are what a regular expression finds; a text that contains another has its words, but for the edges."""

import re

import pyarrow as pa
from hypothesis import given, settings, strategies as st

from puffin_index.keys.words import runs_of, words_of, words_of_blocks
from tests.conftest import amount

TEXTS = st.text(st.sampled_from("ab1Z ,.é😀-_\n\0"), max_size=12)
WORD = re.compile(rb"[0-9A-Za-z\x80-\xff]+")


def words(text: str | None) -> list[bytes]:
    return WORD.findall((text or "").encode())


@settings(max_examples=amount(100, 5000))
@given(st.lists(TEXTS | st.none(), max_size=20), st.integers(0, 3), st.sampled_from([pa.string(), pa.large_string()]))
def test_words_are_those_of_each_text(texts: list[str | None], first: int, arrow_type: pa.DataType) -> None:
    found = words_of(pa.array(texts, arrow_type)[first:])
    assert found.to_pylist() == [word for text in texts[first:] for word in words(text)]


@settings(max_examples=amount(100, 5000))
@given(st.lists(TEXTS | st.none(), max_size=20), st.integers(0, 9), st.integers(1, 5))
def test_each_word_of_a_block_comes_once(texts: list[str | None], first_row: int, block_rows: int) -> None:
    found, blocks = words_of_blocks(pa.array(texts, pa.string()), first_row, block_rows)
    rows = enumerate(texts, first_row)
    assert blocks.tolist() == sorted(blocks.tolist())
    assert sorted(zip(blocks.tolist(), found.to_pylist(), strict=True)) == sorted(
        {(row // block_rows, word) for row, text in rows for word in words(text)}
    )


def test_bytes_are_of_words_as_an_expression_says() -> None:
    every = bytes(range(256))
    assert words_of(pa.array([every], pa.binary())).to_pylist() == WORD.findall(every)


@settings(max_examples=amount(200, 10_000))
@given(TEXTS, TEXTS, TEXTS)
def test_a_text_has_the_words_of_its_parts(before: str, part: str, after: str) -> None:
    every = words(before + part + after)
    for run, is_first, is_last in runs_of(part.encode()):
        assert any(
            word == run
            or (is_first and is_last and run in word)
            or (is_first and word.endswith(run))
            or (is_last and word.startswith(run))
            for word in every
        )
    assert [run for run, *_ in runs_of(part.encode())] == words(part)
