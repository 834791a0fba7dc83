"""The planner: which row groups of an Iceberg table a query has to read; scans and aggregates that read just those."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from puffin_index.errors import MissingExtraError

if TYPE_CHECKING:
    from planner.advice.advice_answer import Advice as Advice
    from planner.advice.advise import advise as advise
    from planner.advice.what_if import WhatIf as WhatIf, what_if as what_if
    from planner.arrow.aggregate import RowCount as RowCount, aggregate as aggregate, count as count
    from planner.arrow.arrow_scan import scan as scan
    from planner.arrow.dataset import IndexedDataset as IndexedDataset, dataset as dataset
    from planner.arrow.locate import locate as locate
    from planner.arrow.look_up import PreparedGet as PreparedGet, get as get, prepare as prepare
    from planner.arrow.plan import plan as plan
    from planner.query_log.benefits import Benefits as Benefits, benefits as benefits
    from planner.report.scan_plan import ScanPlan as ScanPlan, Split as Split
    from planner.spark.hook import (
        call as call,
        disable as disable,
        enable as enable,
        explain as explain,
        reports as reports,
    )

_HOMES: Final = {
    "Advice": "advice.advice_answer",
    "Benefits": "query_log.benefits",
    "IndexedDataset": "arrow.dataset",
    "PreparedGet": "arrow.look_up",
    "RowCount": "arrow.aggregate",
    "ScanPlan": "report.scan_plan",
    "Split": "report.scan_plan",
    "WhatIf": "advice.what_if",
    "advise": "advice.advise",
    "aggregate": "arrow.aggregate",
    "benefits": "query_log.benefits",
    "call": "spark.hook",
    "count": "arrow.aggregate",
    "dataset": "arrow.dataset",
    "disable": "spark.hook",
    "enable": "spark.hook",
    "explain": "spark.hook",
    "get": "arrow.look_up",
    "locate": "arrow.locate",
    "plan": "arrow.plan",
    "prepare": "arrow.look_up",
    "reports": "spark.hook",
    "scan": "arrow.arrow_scan",
    "what_if": "advice.what_if",
}
"""The module of each name, imported when somebody asks: PyIceberg takes half a second, and `--help` needs none."""

__all__ = list(_HOMES)


def __dir__() -> list[str]:
    """The names of the interface, for completion: they are no attributes yet."""
    return __all__


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise MissingExtraError("pyspark", "spark") from error
