"""The settings `spark.puffin-index.*` of a session, as a query finds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from planner.clock import DEFAULT_MILLISECONDS
from planner.prune.distributed import PlanningMode
from planner.prune.gate import DEFAULT_BYTE_BUDGET
from puffin_index.errors import PuffinIndexError

PREFIX = "spark.puffin-index."


class SettingsError(PuffinIndexError):
    """A setting that there is not, or a value that it does not take."""


def _flag(text: object) -> bool:
    match str(text).strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError("it should be true or false")


Flag = Annotated[bool, BeforeValidator(_flag)]


class Settings(BaseModel):
    """What users set in the Spark configuration, read anew for each query.

    Attributes:
        enabled: Whether the index is used.
        strict: Whether trouble with the index fails the query, instead of reading everything.
        job_description: Whether a query's jobs say in their description what was kept.
        byte_budget: How many bytes of index a scan may read, directories not counted.
        planning_mode: Whether the driver plans, the executors do, or what suits the number of row groups.
        planning_milliseconds: How long judging the row groups of a scan may take; what is not decided by then is read.
        refresh_seconds: How old the version of the index may be that a query uses without the catalog being asked anew;
            0: each query asks, and waits for the answer.
        absence_seconds: How long it is remembered that a table has no index.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))

    enabled: Flag = True
    strict: Flag = False
    job_description: Flag = True
    byte_budget: int = Field(default=DEFAULT_BYTE_BUDGET, ge=0)
    planning_mode: PlanningMode = "auto"
    planning_milliseconds: int = Field(default=DEFAULT_MILLISECONDS, ge=0)
    refresh_seconds: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    absence_seconds: float = Field(default=10.0, ge=0, allow_inf_nan=False)


def setting_names() -> list[str]:
    """The names of all settings, without their prefix."""
    return [name.replace("_", "-") for name in Settings.model_fields]


def read_settings(entries: Mapping[str, str], *, strict: bool = False) -> Settings:
    """Read settings.

    Args:
        entries: Values by name, without the prefix.
        strict: What `strict` is where it is not set.

    Raises:
        SettingsError: If there is no such setting, or the value is none of its values.
    """
    try:
        return Settings.model_validate({"strict": str(strict), **entries})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise SettingsError(f"there is no setting {PREFIX}{name}; there are {', '.join(setting_names())}") from None
        reason = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{PREFIX}{name} cannot be {entries[name]!r}: {reason}") from None
