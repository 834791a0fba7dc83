"""What is worked out of a test is kept for all payloads that are asked, whatever other threads forget meanwhile."""

from puffin_index.keys.asked import AskedTest
from puffin_index.keys.leaf import SetTest


def test_what_was_worked_out_is_not_worked_out_again() -> None:
    asked = AskedTest(SetTest((1, 2)))
    worked_out: list[str] = []
    for key in ("a", "b", "a", "b"):
        assert asked.remember(key, lambda key=key: worked_out.append(key) or f"of {key}") == f"of {key}"
    assert worked_out == ["a", "b"]


class Interrupted:
    """A key that lets others be remembered whenever it is looked for: as other threads might, at any point."""

    def __init__(self, asked: AskedTest) -> None:
        self._asked = asked

    def __hash__(self) -> int:
        for other in range(20):
            self._asked.remember(other, lambda other=other: f"of {other}")
        return 7


def test_what_others_forget_meanwhile_is_still_given() -> None:
    asked = AskedTest(SetTest((1, 2)))
    for _ in range(3):
        assert asked.remember(Interrupted(asked), lambda: "of this one") == "of this one"
