"""A group of commands whose modules are imported when a command is called, so that `--help` imports none of them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple

import click


class LazyCommand(NamedTuple):
    """A command that is not imported yet.

    Attributes:
        module: The module that has the command.
        attribute: The name of the command in the module.
        summary: The first sentence of the command's help.
    """

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A group of commands, some of which are not imported yet."""

    def add_lazy(self, commands: Mapping[str, LazyCommand]) -> None:
        """Add commands by name."""
        self._lazy = {**getattr(self, "_lazy", {}), **commands}

    @property
    def _not_imported(self) -> dict[str, LazyCommand]:
        lazy: dict[str, LazyCommand] = getattr(self, "_lazy", {})
        return lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*super().list_commands(ctx), *self._not_imported})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported if need be."""
        lazy = self._not_imported.get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        command = getattr(import_module(lazy.module), lazy.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that arguments begin with; an error names the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(error.message + hint, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of the help."""
        rows: list[tuple[str, str]] = []
        for name in self.list_commands(ctx):
            if name in self._not_imported:
                rows.append((name, self._not_imported[name].summary))
            elif (command := self.get_command(ctx, name)) is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=200)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
