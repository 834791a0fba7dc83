"""The settings of the hook (`spark.puffin-index.*`)."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from planner.clock import DEFAULT_MILLISECONDS
from planner.prune.distributed import PlanningMode
from planner.prune.gate import DEFAULT_BYTE_BUDGET, DEFAULT_REGRET_SHARE, ROWS_BYTE_BUDGET, Limits
from puffin_index.errors import PuffinIndexError

_PREFIX = "spark.puffin-index."


class SettingsError(PuffinIndexError):
    """Say that there is no such setting, or that the setting does not take this value."""


def _flag(text: object) -> bool:
    known = {"true": True, "false": False}.get(str(text).strip().lower())
    if known is None:
        raise ValueError("it should be true or false")
    return known


Flag = Annotated[bool, BeforeValidator(_flag)]


class Settings(BaseModel):
    """What users set in the Spark configuration, read for each query; docs/settings.md (Settings) describes each."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))

    byte_budget: int = Field(default=DEFAULT_BYTE_BUDGET, ge=0)
    planning_milliseconds: int = Field(default=DEFAULT_MILLISECONDS, ge=0)
    regret_share: float = Field(default=DEFAULT_REGRET_SHARE, ge=0, le=1, allow_inf_nan=False)
    enabled: Flag = True
    strict: Flag = False
    job_description: Flag = True
    join_pruning: Flag = True
    merge_pruning: Flag = True
    side_milliseconds: int = Field(default=5_000, ge=0)
    top_k: Flag = True
    limit: Flag = True
    functions: Flag = True
    aggregates: Flag = True
    pages: Flag = True
    planning_mode: PlanningMode = "auto"
    refresh_seconds: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    absence_seconds: float = Field(default=10.0, ge=0, allow_inf_nan=False)
    query_log: str = ""
    query_log_literals: Flag = False
    audit: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)
    audit_row_groups: int = Field(default=8, ge=1)
    audit_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    # The plugin reads these, in Java.
    python: str = ""
    start_milliseconds: int = Field(default=0, ge=0)
    silence_milliseconds: int = Field(default=10_000, ge=1_000)

    def limits(self, *, strict: bool, of_aggregates: bool = False) -> Limits:
        """The bounds for the planner. Aggregates may read more, unless there is a setting."""
        is_more = of_aggregates and "byte_budget" not in self.model_fields_set
        return Limits(
            strict,
            ROWS_BYTE_BUDGET if is_more else self.byte_budget,
            seconds=self.planning_milliseconds / 1000,
            regret_share=self.regret_share,
            pages=self.pages,
        )

    @classmethod
    def names(cls) -> list[str]:
        """The names that users set."""
        return [name.replace("_", "-") for name in cls.model_fields]


def read_settings(conf: Mapping[str, str], *, strict: bool = False) -> Settings:
    """Read the settings in a configuration; other entries are ignored, and `strict` is that given unless set there.

    Raises SettingsError if there is no such setting, or a setting does not take its value.
    """
    entries = {key.removeprefix(_PREFIX): value for key, value in conf.items() if key.startswith(_PREFIX)}
    try:
        return Settings.model_validate({"strict": str(strict), **entries})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise SettingsError(
                f"there is no setting {_PREFIX}{name}; there are {', '.join(Settings.names())}"
            ) from None
        reason = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{_PREFIX}{name} cannot be {entries[name]!r}: {reason}") from None
