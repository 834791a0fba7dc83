"""Settings of a session: defaults, values, and names that there are not."""

import pytest

from planner.prune.gate import DEFAULT_BYTE_BUDGET, ROWS_BYTE_BUDGET
from planner.spark.settings import Settings, SettingsError, read_settings


def test_nothing_set_means_the_defaults() -> None:
    assert read_settings({}) == Settings()
    assert read_settings({}).byte_budget == DEFAULT_BYTE_BUDGET


@pytest.mark.parametrize(("conf", "budget"), [({}, ROWS_BYTE_BUDGET), ({"spark.puffin-index.byte-budget": "5"}, 5)])
def test_aggregates_may_read_more_unless_somebody_says_how_much(conf: dict[str, str], budget: int) -> None:
    assert read_settings(conf).limits(strict=False, of_aggregates=True).byte_budget == budget


def test_what_is_set_wins_over_what_enable_was_told() -> None:
    assert read_settings({}, strict=True).strict
    assert not read_settings({"spark.puffin-index.strict": " False "}, strict=True).strict


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enabled", "yes"),
        ("byte-budget", "-1"),
        ("byte-budget", "1 GB"),
        ("absence-seconds", "nan"),
        ("planning-milliseconds", "-1"),
        ("regret-share", "1.5"),
        ("planning-mode", "remote"),
        ("strict", ""),
    ],
)
def test_a_value_that_makes_no_sense_is_named_with_its_setting(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({f"spark.puffin-index.{name}": value})
    assert f"spark.puffin-index.{name} cannot be {value!r}" in str(caught.value)


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({"spark.puffin-index.byte_budget": "1"})
    assert "spark.puffin-index.byte_budget" in str(caught.value)
    assert all(name in str(caught.value) for name in Settings.names())
