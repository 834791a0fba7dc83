"""The program `ssb-bench`. It says what to install where packages of the benchmark are missing."""

import sys
from importlib import import_module

from puffin_index.errors import MissingExtraError


def main() -> None:
    """Run the command of the command line."""
    try:
        commands = import_module("ssb_bench.commands.main")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ssb_bench"):
            raise
        print(f"error: {MissingExtraError(error.name or 'a package', 'bench')}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    commands.cli(prog_name="ssb-bench")


if __name__ == "__main__":
    main()
