"""Rounds are the longest chain of requests, whatever else is under way meanwhile."""

from hypothesis import given, strategies as st

from ssb_bench.stores.server import Request, Span, Traffic, most_at_once, rounds_of

SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 10)).map(lambda one: (float(one[0]), float(sum(one)))), max_size=12
)


def longest_chain(spans: list[Span]) -> int:
    longest: dict[int, int] = {}
    for at in sorted(range(len(spans)), key=lambda at: spans[at]):
        longest[at] = 1 + max((longest[before] for before in longest if spans[before][1] <= spans[at][0]), default=0)
    return max(longest.values(), default=0)


@given(SPANS)
def test_rounds_are_the_longest_chain(spans: list[Span]) -> None:
    assert rounds_of(spans) == longest_chain(spans)


@given(SPANS)
def test_so_many_are_under_way_at_most(spans: list[Span]) -> None:
    due = max((sum(began <= at < ended for began, ended in spans) for at, _ in spans), default=0)
    assert most_at_once(spans) == due


def test_traffic_is_summed_up() -> None:
    requests = [
        Request(0.0, 1.0, "RANGE", "house/a", 10, 0, 206),
        Request(1.0, 2.0, "PUT", "house/b", 0, 5, 200),
        Request(0.5, 1.5, "HEAD", "house/c", 0, 0, 404),
    ]
    found = Traffic.of(requests)
    assert (found.rounds, found.requests, found.most_at_once) == (2, 3, 2)
    assert (found.by_kind, found.bytes_in, found.bytes_out) == ({"HEAD": 1, "PUT": 1, "RANGE": 1}, 10, 5)
