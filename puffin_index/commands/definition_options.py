"""The options that name columns and kinds of an index, which several commands have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import click

from puffin_index.commands.main import parse_properties
from puffin_index.definition.index_definition import IndexDefinition


def split_names(texts: Iterable[str]) -> list[str]:
    """Read names from an option that may be given several times, each time with names between commas."""
    names = (name.strip() for text in texts for name in text.split(","))
    return list(dict.fromkeys(name for name in names if name))


def definition_options(*, with_options: bool = True) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Add `--bitmap`, `--bsi` and `--bloom`, and give the command what they say as its argument `definition`.

    Args:
        with_options: Whether to add `--option` as well.
    """

    def decorate(command: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(command)
        def run(
            *,
            bitmap: tuple[str, ...],
            bsi: tuple[str, ...],
            bloom: tuple[str, ...],
            options: tuple[str, ...] = (),
            **others: object,
        ) -> object:
            of_kind = {"bitmap": split_names(bitmap), "bsi": split_names(bsi), "bloom": split_names(bloom)}
            definition = IndexDefinition.of(**of_kind, options=parse_properties(options))
            return command(definition=definition, **others)

        own = run
        if with_options:
            own = click.option(
                "--option", "options", multiple=True, metavar="COL.KEY=VALUE", help="An option of a column's index."
            )(own)
        for kind, what in (("bloom", "a bloom filter"), ("bsi", "a bit-sliced index"), ("bitmap", "a bitmap index")):
            help_text = f"Columns with {what}; may be repeated."
            own = click.option(f"--{kind}", multiple=True, metavar="C1,C2", help=help_text)(own)
        return own

    return decorate
