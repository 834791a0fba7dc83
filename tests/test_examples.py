"""The notebooks under examples/ run from top to bottom, and each result is shown as a notebook shows it."""

import ast
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def _run(path: Path) -> list[str]:
    """Run the cells in one namespace, and return what a notebook shows below each: HTML, or the text of a value."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(path), "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
            if hasattr(value, "_repr_html_"):
                shown.append(unescape(re.sub(r"\|+", "|", re.sub(r"<[^>]*>", "|", value._repr_html_()))))
            elif value is not None:
                shown.append(repr(value))
    return shown


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_have_no_stored_output(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")


def test_the_first_steps_show_what_they_say(capfd: pytest.CaptureFixture[str]) -> None:
    shown = "\n".join(_run(EXAMPLES / "first-steps.ipynb"))
    for text in (
        "|index of sales.orders|",
        "|amount|long|bsi|",
        "|row groups|20|rows|100,000|",
        "|row groups|20 of 20|",
        "|row groups kept|1 of 20|",
        "not used: reverse(status) = 'nepo': the planner does not evaluate reverse(...) here",
        "|row groups read|0 of 20|",
        "|not indexed|1 (1 of 2 files is indexed: run `puffin-index build`)|",
    ):
        assert text in shown, text
    assert capfd.readouterr() == ("", "")


def test_other_engines_get_the_same_rows(capfd: pytest.CaptureFixture[str]) -> None:
    shown = _run(EXAMPLES / "other-engines.ipynb")
    text = "\n".join(shown)
    (of_duckdb,) = (ast.literal_eval(one)[0][0] for one in shown if one.startswith("[("))
    assert str(of_duckdb) in shown
    assert of_duckdb > 0
    assert "|row groups kept|" in text
    assert capfd.readouterr() == ("", "")
