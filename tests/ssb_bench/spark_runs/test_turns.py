"""In what order the sides of a comparison run."""

from ssb_bench.spark_runs.measure import in_turns


def test_rounds_go_forwards_and_backwards() -> None:
    assert list(in_turns("ab", 3)) == ["a", "b", "b", "a", "a", "b"]
    assert list(in_turns("ab", 0)) == []
