"""The life of a process that asks: questions again and again, wrong answers and trouble told, caches emptied."""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NoReturn, Protocol

from tests.soak.world import EMPTY_CACHES_SECONDS, World, empty_caches, tell

_REST_SECONDS = 0.5


class Asks(Protocol):
    """Whoever asks."""

    def once(self) -> None:
        """Ask some questions.

        Raises:
            AssertionError: If an answer is wrong.
        """


def ask_on(
    world: World, random: Random, make: Callable[[], Asks], trouble: tuple[type[Exception], ...], event: str
) -> NoReturn:
    """Ask until the process is ended.

    Args:
        world: Its folder takes a file of wrong answers.
        random: Chooses the pauses.
        make: Makes who asks; called until the first success.
        trouble: What may be raised while a store or catalog is in trouble.
        event: The name of the event that tells of trouble.
    """
    reader: Asks | None = None
    emptied = time.monotonic()
    while True:
        if time.monotonic() - emptied >= EMPTY_CACHES_SECONDS:
            empty_caches()
            emptied = time.monotonic()
        try:
            reader = reader or make()
            reader.once()
        except AssertionError as error:
            tell("wrong", what=str(error))
            with (Path(world.folder) / "wrong.txt").open("a", encoding="utf-8") as file:
                file.write(f"{error}\n")
        except trouble as error:
            tell(event, error=type(error).__name__, said=str(error).splitlines()[0][:200])
            time.sleep(_REST_SECONDS)
        time.sleep(random.expovariate(4.0))
