"""The HTML page: everything in one file, failures and missed targets in sight."""

import io
import re
from collections.abc import Iterable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from rich.console import Console

from ssb_bench.data.layout import read_record
from ssb_bench.report.document import Part, render
from ssb_bench.report.figures import draw_run, save
from ssb_bench.report.page import write_page
from ssb_bench.report.reports import append_parts, clustered_parts, run_parts, scale_parts, systems_parts
from ssb_bench.results.run import Run
from ssb_bench.results.studies import (
    Appended,
    AppendRun,
    BurstCell,
    BurstTable,
    ClusteredRun,
    Execution,
    Probe,
    Scale,
    ScalePoint,
    SystemResult,
    SystemsRun,
)

RECORDED = Path(__file__).parents[1] / "run.json"


class Balance(HTMLParser):
    """Checks that elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the signature is the library's
        self.tags.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - as above
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def run() -> Run:
    return read_record(RECORDED, Run)


def sections() -> dict[str, Iterable[Part]]:
    """What each study but the run says."""
    ran = SystemResult("lance", "Lance & co", {"version": "1"}, None, {"q1": 0.5}, {"q1": [0.2, 0.1]})
    wrong = SystemResult("x", "X", {}, None, {"q1": None}, {}, {"q1": "answers 3, 4 is due"})
    absent = SystemResult("hudi", "Hudi", failure="not to be had")
    systems = SystemsRun("2026-01-01", 1.0, 10, 2, 100, {}, {"q1": "a = 1"}, (ran, wrong, absent))
    probe = Probe(0.1, 0.1, (0.2,), 1, 1, 1, 1, 1, True, 1_000_000, {})
    scale = Scale({}, tuple(ScalePoint("bloom, equality", size, 1, probe, None) for size in (1000, 10_000)))
    cells = [
        BurstCell("128 MB", "random", "long", burst, "needle", 20, 2, kept, 20, wrong, 9, 900, 0.1)
        for burst, kept, wrong in ((1, 2, 0), (4, 1, 1), (12, 3, 0))
    ]
    tables = (BurstTable("128 MB", 20, 9, 900, 90),)
    clustered = ClusteredRun(100, 1, {}, tables, tuple(cells), ("1 row group with matches is dropped",))
    appended = (Appended(1000, 0.5, 1.0, 2.0), Appended(1000, 0.4, 5.0, None))
    executions = (Execution("q1", 0.5, 0.3, None, None, None), Execution("q1", 4.0, 0.2, 4, 1, 0))
    appends = AppendRun(1.0, 4.0, 100, {}, appended, executions, ("batch 1 was never indexed",))
    return {
        "Systems": systems_parts(systems),
        "Appends": append_parts(appends),
        "Clustered": clustered_parts(clustered),
        "Scale": scale_parts(scale),
    }


def page_of(run: Run, folder: Path, **others: Iterable[Part]) -> str:
    write_page({"Runs": run_parts(run), **others}, folder / "page.html")
    return (folder / "page.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of everything, which is drawn once."""
    folder = tmp_path_factory.mktemp("page")
    page_of(run, folder, **sections())
    return folder / "page.html"


def test_the_page_is_well_formed_and_needs_nothing_else(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parser = Balance()
    parser.feed(text)

    assert parser.open == []
    assert parser.tags.count("svg") == 5
    assert not {"script", "link", "img"} & set(parser.tags)
    assert re.findall(r'(?:src|href)="http', text) == []


def test_every_picture_is_also_a_file_of_either_kind(page: Path) -> None:
    names = {"queries", "systems", "appends", "clustered", "scale"}
    files = {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert {file.name for file in page.with_name("page-pictures").iterdir()} == files


def test_everything_that_was_measured_is_there(run: Run, page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    for query in run.queries:
        assert f"<td>{query.name}</td>" in text
    assert "Lance &amp; co" in text
    assert "Hudi: not to be had" in text
    assert "answers 3, 4 is due" in text
    assert "batch 1 was never indexed" in text
    assert "<p class=bad>FAILED  1 row group with matches is dropped</p>" in text
    assert "<p class=bad>1 of 3 cells" in text
    assert "<td>needle of longs in bursts of 12, random, row groups of 128 MB</td>" in text
    assert "Limitations" in text


def test_the_page_says_the_answer_in_a_sentence(run: Run, tmp_path: Path) -> None:
    text = page_of(run, tmp_path)
    wrong = replace(run.queries[0], answers_equal=False, failures=("2 rows, 3 are due",))
    text_of_wrong = page_of(replace(run, queries=(wrong, *run.queries[1:])), tmp_path)

    ratios = [query.speed_up for query in run.queries if query.speed_up is not None]
    assert f"{run.table.rows:,} rows" in text
    assert f"(geometric mean of 7, {min(ratios):.1f} to {max(ratios):.1f}); DuckDB gives the same answers." in text
    assert "some answers are not those of DuckDB" in text_of_wrong
    assert "FAILED  q1: 2 rows, 3 are due" in text_of_wrong


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Texts of a picture that lie over each other."""
    FigureCanvasAgg(figure).draw()
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
def test_no_label_of_a_picture_lies_over_another(run: Run, names: list[str]) -> None:
    queries = [replace(run.queries[n % 7], name=name) for n, name in enumerate(names)]
    queries += [replace(query, workload="aggregate") for query in queries[:7]]

    assert overlaps(draw_run(replace(run, queries=tuple(queries)))) == []


def test_arms_may_have_run_differently_often(run: Run, tmp_path: Path) -> None:
    first = run.queries[0]
    assert first.with_index is not None
    often = replace(first, with_index=replace(first.with_index, seconds=first.with_index.seconds * 5))
    more = replace(run, queries=(often, *run.queries[1:]))

    page_of(more, tmp_path)
    save(draw_run(more), tmp_path / "run.png")
    Console(file=io.StringIO()).print(render(run_parts(more)))
    assert often.speed_up == first.speed_up


def test_a_failed_query_is_null_and_listed(run: Run, tmp_path: Path) -> None:
    broken = replace(
        run.queries[0], answer=None, without_index=None, with_index=None, plan=None, failures=("it <broke>",)
    )
    text = page_of(replace(run, queries=(broken, *run.queries[1:])), tmp_path)

    assert "it &lt;broke&gt;" in text
    assert "<td class=bad>null</td>" in text
