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
    from planner.query_log import Benefits as Benefits, benefits as benefits
    from planner.report.scan_plan import ScanPlan as ScanPlan, Split as Split
    from planner.spark.hook import (
        call as call,
        disable as disable,
        enable as enable,
        explain as explain,
        reports as reports,
    )

_NAMES: Final = {
    "advice.advice_answer": "Advice",
    "advice.advise": "advise",
    "advice.what_if": "WhatIf what_if",
    "arrow.aggregate": "RowCount aggregate count",
    "arrow.arrow_scan": "scan",
    "arrow.dataset": "IndexedDataset dataset",
    "arrow.locate": "locate",
    "arrow.look_up": "PreparedGet get prepare",
    "arrow.plan": "plan",
    "query_log": "Benefits benefits",
    "report.scan_plan": "ScanPlan Split",
    "spark.hook": "call disable enable explain reports",
}
"""The modules of the names, imported when somebody asks: PyIceberg takes half a second, and `--help` needs none."""

_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}

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
