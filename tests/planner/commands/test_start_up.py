"""What a command imports before it begins; numbers of modules stand for time, which a busy machine would falsify."""

import importlib
import json
import sys
from itertools import count, takewhile
from rlcompleter import Completer

import click
import pytest

from planner.commands.main import main
from tests.processes import run_python

HELP_MAY_IMPORT = {"click", "rich", "puffin_index", "planner"}
"""The packages that `--help` may import, besides Python's own and what these import themselves."""
_NEEDED_BY_THESE = {"markdown_it", "mdurl", "pygments", "colorama", "typing_extensions"}
_OURS = {
    "planner",
    "planner.commands",
    "planner.commands.main",
    "puffin_index",
    "puffin_index.commands",
    "puffin_index.commands.main",
    "puffin_index.commands.logs",
    "puffin_index.errors",
}


def _imported_by(code: str) -> set[str]:
    """The modules that code imports in a Python of its own, beyond what Python itself starts with."""
    program = (
        f"import sys, json; before = set(sys.modules)\n{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    return set(json.loads(run_python(program).stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_help_imports_none_of_the_commands(arguments: list[str]) -> None:
    found = _imported_by(f"from planner.commands.main import main\ntry: main({arguments!r})\nexcept SystemExit: pass")
    packages = {name.partition(".")[0] for name in found} - sys.stdlib_module_names
    assert packages <= HELP_MAY_IMPORT | _NEEDED_BY_THESE
    assert {name for name in found if name.partition(".")[0] in ("puffin_index", "planner")} == _OURS


@pytest.mark.parametrize("package", ["planner", "puffin_index"])
def test_a_package_imports_what_is_asked_for(package: str) -> None:
    found = _imported_by(f"import {package}")
    ours = {name for name in found if name.partition(".")[0] not in sys.stdlib_module_names}
    assert ours == {package} | {"puffin_index", "puffin_index.errors"} if package == "planner" else {package}
    every = _imported_by(f"import {package}\nfor name in {package}.__all__: getattr({package}, name)")
    assert "pyiceberg" in every


def test_a_plan_needs_no_spark() -> None:
    found = {name.partition(".")[0] for name in _imported_by("from planner import plan, count, scan, aggregate")}
    assert not found & {"pyspark", "py4j"}


def test_names_that_are_not_there_are_errors() -> None:
    import planner
    import puffin_index

    for module in (planner, puffin_index):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nothing'"):
            _ = module.nothing


@pytest.mark.parametrize("package", ["planner", "puffin_index"])
def test_a_notebook_completes_the_names_of_the_interface(package: str) -> None:
    module = importlib.import_module(package)
    completer = Completer({package: module})

    found = takewhile(bool, (completer.complete(f"{package}.", number) for number in count()))
    names = {name.removeprefix(f"{package}.").rstrip("()") for name in found}
    assert names == {name for name in module.__all__ if not name.startswith("_")}
    assert set(dir(module)) == set(module.__all__)


def test_the_help_says_what_the_commands_say() -> None:
    context = click.Context(main)
    shown = main.get_help(context)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
        summary = command.get_short_help_str(limit=1_000).removesuffix(".")
        assert summary in " ".join(shown.split()), name
