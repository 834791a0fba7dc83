"""Work in parallel gives results in order, keeps context variables and never waits for itself."""

from __future__ import annotations

import threading
from contextvars import ContextVar

import pytest

from puffin_index.storage.parallel import in_parallel

NAME: ContextVar[str] = ContextVar("NAME", default="none")


def test_results_come_in_the_order_of_the_items() -> None:
    assert in_parallel(lambda item: item * 2, range(100)) == [item * 2 for item in range(100)]
    assert in_parallel(lambda item: item, []) == []


def test_items_are_worked_on_at_the_same_time() -> None:
    barrier = threading.Barrier(4, timeout=30)
    in_parallel(lambda _: barrier.wait(), range(4))


def test_workers_see_the_callers_context() -> None:
    token = NAME.set("caller")
    try:
        assert in_parallel(lambda _: NAME.get(), range(8)) == ["caller"] * 8
    finally:
        NAME.reset(token)


def test_nested_work_ends() -> None:
    nested = in_parallel(lambda item: sum(in_parallel(lambda other: item * other, range(10))), range(64))
    assert nested == [item * 45 for item in range(64)]


def test_the_first_error_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda item: 1 // item, [1, 0, 2])
    # A worker that failed is free again.
    assert in_parallel(lambda item: len(in_parallel(str, range(item))), [3, 4]) == [3, 4]
