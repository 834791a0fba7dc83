"""Records as text, picture and HTML page: everything is there, failures and missed targets in sight."""

import io
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from rich.console import Console, Group

from ssb_bench.data.layout import read_record
from ssb_bench.report.page import write_page
from ssb_bench.report.picture import draw, save
from ssb_bench.report.tables import parts_of, shown
from ssb_bench.results.record import Record, Step, times_as_fast
from tests.puffin_index.test_display import Page

RECORDED = Path(__file__).parents[1] / "run.json"


@pytest.fixture(scope="module")
def run() -> Record:
    return read_record(RECORDED, Record)


def other() -> Record:
    """A study with failures, missed targets, cases and counts that not every side has."""
    steps = (
        Step("q1", "Lance & co", (0.2, 0.1), 0.5, {"99th of 100 seconds": 0.5}),
        Step("q1", "with", (0.3,), 0.6, {"read bytes": 3_000_000}, "4", {"seconds": 0.25}, case="one"),
        Step("q1", "with", (0.3,), 0.6, {"read bytes": 2_000_000}, "4", {"read bytes": 9}, case="other"),
        Step("q2", "Lance & co", failure="answers 3, 4 <is> due", heading="part"),
        Step("q2", "with", (0.1,), heading="part"),
    )
    facts: dict[str, dict[str, int | float | str]] = {"Hudi": {"not run": "not to be had"}, "table": {"data bytes": 10}}
    return Record("systems", "Other systems", "2026-01-01T00:00:00+00:00", 1.0, {}, facts, steps, ("no batch <came>",))


def text_of(record: Record, width: int = 120) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(Group(*parts_of(record)))
    return text.getvalue()


@pytest.fixture(scope="module")
def page(run: Record, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of both, which is drawn once."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_page([run, other()], path)
    return path


def test_the_table_shows_every_query_with_both_sides(run: Record) -> None:
    text = text_of(run)

    for (_, name), sides in run.rows().items():
        ((without,), (with_index,)) = sides.values()
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        assert f"{int(without.answer or ''):,}" in line
        assert "without" in line
        assert f"{times_as_fast(without, with_index):.2f}" in text
    assert f"rows {6_001_215:,}" in text
    assert "times as fast as without" in text
    assert "FAILED" not in text
    assert "MISSED" not in text


def test_the_table_fits_a_terminal_of_100_columns(run: Record) -> None:
    text = text_of(run, width=100)

    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_failures_and_missed_targets_are_said(run: Record) -> None:
    text = text_of(other())

    assert "FAILED  part, q2, Lance & co: answers 3, 4 <is> due" in text
    assert "FAILED  no batch <came>" in text
    assert "MISSED  q1, one, with: s 0.3 (at most 0.25)" in text
    assert "MISSED  q1, other, with: read MB 2.00 (at most 0.00)" in text
    many = [replace(run.steps[1], most={"seconds": 1e-9}, case=str(number)) for number in range(40)]
    assert "MISSED  10 more, which are in the JSON" in text_of(replace(run, steps=tuple(many)))


def test_numbers_are_in_the_unit_of_their_names() -> None:
    assert shown("read bytes", 1_234_567_890) == "1,234.57"
    assert shown("seconds", 0.012345) == "0.0123"
    assert (shown("rows", 1_000_000), shown("rounds", 1.5)) == ("1,000,000", "1.5")


def test_the_page_is_well_formed_and_needs_nothing_else(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    tags = Page(text).tags

    assert tags.count("svg") == 2
    assert not {"script", "link", "img"} & {*tags}
    assert re.findall(r'(?:src|href)="http', text) == []
    files = {f"{name}.{kind}" for name in ("run", "systems") for kind in ("png", "svg")}
    assert {file.name for file in page.with_name("page-pictures").iterdir()} == files


def test_everything_that_was_measured_is_on_the_page(run: Record, page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    for step in run.steps:
        assert f"<td>{step.name}</td>" in text
    assert "<td>Lance &amp; co</td>" in text
    assert "Hudi: not run not to be had" in text
    assert "answers 3, 4 &lt;is&gt; due" in text
    assert '<td class="bold red">null</td>' in text
    assert '<td class="bold red">5.00</td>' in text
    assert '<td class="bold red">0.3</td>' in text
    assert '<p class="bold red">FAILED  no batch &lt;came&gt;</p>' in text
    assert "<dt>processor</dt>" in text
    assert "Limitations" in text


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_is_drawn(run: Record, tmp_path: Path, suffix: str) -> None:
    picture = tmp_path / f"run.{suffix}"
    save(draw(run), picture)

    assert picture.stat().st_size > 10_000
    if suffix == "png":
        height, width, _ = matplotlib.image.imread(picture).shape
        assert width > 1500
        assert height > 500


def test_a_picture_is_drawn_of_what_did_not_fail(run: Record, tmp_path: Path) -> None:
    broken = replace(run.steps[0], seconds=(), counts={}, failure="it broke")
    save(draw(replace(run, steps=(broken, *run.steps[1:]))), tmp_path / "less.png")
    save(draw(replace(run, steps=(broken,))), tmp_path / "one.png")
    save(draw(replace(run, steps=())), tmp_path / "none.png")

    assert (tmp_path / "none.png").stat().st_size < (tmp_path / "less.png").stat().st_size


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Texts of a picture that lie over each other."""
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    # Ticks beyond the axes have texts that nobody sees.
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_window_extent().width > 0]
    width, height = figure.canvas.get_width_height()
    seen = [
        (name, box) for name, box in boxes if box.x0 >= 0 and box.x1 <= width + 1 and box.y0 >= 0 and box.y1 <= height
    ]
    return [
        (one, other)
        for number, (one, box) in enumerate(seen)
        for other, beside in seen[number + 1 :]
        if box.shrunk(0.9, 0.8).overlaps(beside.shrunk(0.9, 0.8)) and (box.bounds != beside.bounds or one != other)
    ]


@pytest.mark.parametrize("names", [[f"q{n}" for n in range(1, 8)], [f"a_rather_long_name_{n}" for n in range(15)]])
def test_no_label_of_a_picture_lies_over_another(run: Record, names: list[str]) -> None:
    pairs = list(run.rows().values())
    steps = [
        replace(step, name=name, heading=heading)
        for heading in ("counts", "Joins, subqueries, first rows, functions: what the rest of a query implies")
        for number, name in enumerate(names)
        for (step,) in pairs[number % 7].values()
    ]

    assert overlaps(draw(replace(run, steps=tuple(steps)))) == []
