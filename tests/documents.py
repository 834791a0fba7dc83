"""The documents, in the order of the site, and the blocks of code in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_RUN = "Not run by the tests: "
"""How the comment begins that is the first line of a block which no test can run; the reason follows."""

LANGUAGES = {"python": "#", "sh": "#", "yaml": "#", "sql": "--"}
"""Blocks that are run, and how their comments begin. Other blocks are outputs and grammars."""

PAGES = tuple(
    f"docs/{name}" for name in re.findall(r": (\w[\w-]*\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
)
"""In the order of the site."""

USERS_PAGES = PAGES[: PAGES.index("docs/versions.md") + 1]

_START = PAGES.index("docs/start.md") + 1
RUN_PAGES = (*USERS_PAGES[:_START], "README.md", *USERS_PAGES[_START:])
"""Pages whose blocks are run, in this order: the README goes on with the table of the start."""

_BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: its language, empty without one, and its text."""

    language: str
    text: str

    @property
    def is_marked(self) -> bool:
        """Whether its first line says that tests cannot run it, and why."""
        return self.text.startswith(f"{LANGUAGES.get(self.language)} {NOT_RUN}")

    @property
    def is_run(self) -> bool:
        return self.language in LANGUAGES and not self.is_marked


def blocks_of(page: str) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]
