"""HTML for notebooks is well-formed, needs nothing from elsewhere, and shows all text as text."""

import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, strategies as st

from puffin_index.display import Bar, Cell, Grid, Report, as_json, format_bytes, share_of, show_live

_VOID = ("meta", "br")


class Page(HTMLParser):
    """The text of a page, and its tags; fails if a tag that needs it is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open_tags: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open_tags == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open_tags += [tag] if tag not in _VOID else []
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert tag in _VOID or self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


_CELLS = st.one_of(
    st.text(max_size=30), st.integers(), st.builds(Bar, st.text(max_size=10), st.floats(allow_nan=False))
)


@given(st.text(max_size=50), st.dictionaries(st.text(max_size=10), _CELLS), st.lists(st.tuples(_CELLS, _CELLS)))
def test_all_text_is_shown_as_text(title: str, pairs: dict[str, Cell], rows: list[tuple[Cell, Cell]]) -> None:
    report = Report(title, pairs, [Grid(("<b>", "&amp;"), rows)], [title], [title])
    page = Page(report.as_html())
    assert {*page.tags} <= {"div", "table", "tr", "td", "th", "span"}
    assert page.attributes == {"style"}
    assert f"warning: {title}" in report.as_text()
    assert "warning" not in replace(report, title="", sentences=(), facts={}, grids=()).as_text(warns=False)


def test_tables_and_bars() -> None:
    grid = Grid(("<b>", "part"), [("<script>", share_of(1, 4)), ("x" * 5_000, 1_234)])
    page = Page(Report("", grids=[grid]).as_html())
    assert page.texts == ["<b>", "part", "<script>", "1 of 4", "x" * 2_000 + "…", "1,234"]
    assert "width:40px" in Report("", grids=[Grid(("part",), [(share_of(1, 4),)])]).as_html()
    assert "width:0px" in Report("", grids=[Grid(("part",), [(share_of(0, 0),)])]).as_html()
    assert "<table" not in Report("", {"empty": ""}, [Grid(("part",), [])]).as_html()


def test_text_has_columns() -> None:
    report = Report("a", {"b": 1_000, "c": ""}, [Grid(("d", "e"), [("f", 7), ("ghi", 1_234)])], below=Report("j"))
    assert report.as_text().splitlines() == ["a", "  b: 1,000", "  d        e", "  f        7", "  ghi  1,234", "j"]


def test_json_has_the_fields_of_objects() -> None:
    assert as_json([Bar("a", 0.5), {1: (None, True)}]) == [{"text": "a", "share": 0.5}, {"1": [None, True]}]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (300 << 20, "300 MiB"),
        (3 << 40, "3.0 TiB"),
        (-1536, "-1.5 KiB"),
    ],
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_outside_of_notebooks_nothing_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert "IPython" not in sys.modules
    show_live("a")("b")
    assert capfd.readouterr() == ("", "")
