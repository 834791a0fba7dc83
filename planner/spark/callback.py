"""The planner's side of a hook: each request of the optimizer rule becomes a query, and the answer goes back."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
from pyiceberg.catalog import Catalog
from pyroaring import BitMap

from planner.condition.tree.nodes import UNKNOWN
from planner.prune.distributed import Executors
from planner.query import QueryRequest, answer_query, read_everything
from planner.spark.catalogs import SparkCatalogs
from planner.spark.observed_query import PlannedQuery
from planner.spark.observers import Observers
from planner.spark.read_index import ReadIndex, ReadIndexes, Reports
from planner.spark.requests.aggregates import question_of, serialize_answer
from planner.spark.requests.functions import ColumnFunctions, functions_of, implied_by
from planner.spark.requests.hook_filters import bind_filters, first_rows, scan_of, wanted_runtime_fields, where_of
from planner.spark.requests.wire import KEEP_ALL, Request, serialize_absence, serialize_dropped, serialize_view
from planner.spark.rules import JavaFunction
from planner.spark.settings import Settings, read_settings
from planner.spark.statements.callback import Statements
from puffin_index.errors import PuffinIndexError
from puffin_index.index_table.open_catalog import PASSING_ERRORS
from puffin_index.jobs.log_lines import reason_of
from puffin_index.roaring import row_set_of

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext

_log = logging.getLogger(__name__)

_RAISED_KEPT = 100


class PlannerCallback(JavaFunction):
    """The planner's side of a hook: the rule calls `apply` over py4j, once a scan."""

    def __init__(
        self, catalogs: Mapping[str, Catalog], context: SparkContext, session: str, reports: Reports, *, strict: bool
    ) -> None:
        self.name = uuid4().hex
        self.session = session
        self._context = context
        own_catalogs = SparkCatalogs(catalogs)
        self.statements = Statements(own_catalogs, context)
        self._indexes = ReadIndexes(own_catalogs)
        self._strict = strict
        self.observers = Observers(context)
        self.reports = reports
        # An object that Python no longer has might be gone in Java before Java has read the answer.
        self._raised: deque[JavaObject] = deque(maxlen=_RAISED_KEPT)

    def apply(self, request_text: str, candidates: bytes) -> bytearray | JavaObject:
        """Answer a request (see `planner.spark.requests.wire`); after any failure the scan stays as it is.

        What Java has raised is returned, and Java raises it again.
        The candidates are the scan's row groups, a roaring bitmap of numbers in the request's view.
        """
        strict = self._strict
        try:
            request = Request.model_validate_json(request_text)
            settings = read_settings(request.settings, strict=strict)
            strict = settings.strict
            # py4j makes Java's byte[] of a bytearray.
            return bytearray(self._answer(request, settings, BitMap.deserialize(candidates)))
        except Exception as error:  # the one place that catches everything: no trouble of ours may stop a query
            raised: JavaObject | None = getattr(error, "java_exception", None)
            if raised is not None:
                # Java tells jobs of ours that somebody has cancelled from trouble.
                self._raised.append(raised)
                return raised
            if strict:
                raise
            is_passing = isinstance(error, PASSING_ERRORS)
            _log.warning("index not used, the scan stays as it was: %s", reason_of(error), exc_info=not is_passing)
            return bytearray(KEEP_ALL)

    def _answer(self, request: Request, settings: Settings, candidates: BitMap) -> bytes:
        started = time.perf_counter()
        if not settings.enabled:
            return KEEP_ALL
        index = self._indexes.of(request, settings.refresh_seconds)
        if index is None:
            return serialize_absence(settings.absence_seconds)
        if request.version != index.view.version:
            return serialize_view(index.view)
        numbers = np.frombuffer(candidates.to_array(), np.uint32).astype(np.int64)
        query = QueryRequest(
            scan=scan_of(request, index.view, numbers),
            predicate=UNKNOWN,
            # Not strict yet: what an older version of the index lacks, a newer one may have.
            limits=settings.limits(strict=False),
            executors=Executors(self._context, index.index_table, settings.planning_mode),
            started=started,
        )
        objection = self.observers.objection(request.session, index.table.uuid)
        if objection is not None or not len(numbers):
            return self._without_index(query, objection, request, settings, index)
        functions = functions_of(request, index.reading.schema, query, is_asked=settings.functions)
        wanted_values = functions.wanted_values()
        if wanted_values is not None:
            return wanted_values
        return self._with_index(query, functions, request, settings, index)

    def _without_index(
        self, query: QueryRequest, objection: str | None, request: Request, settings: Settings, index: ReadIndex
    ) -> bytes:
        """Read everything, because no file has an index or an audit found the index wrong, and say so."""
        if objection is not None and settings.strict:
            raise PuffinIndexError(objection)
        query = replace(query, where=where_of(request, literals=True, for_people=True))
        answer = read_everything(query, *([] if objection is None else [objection]))
        # A scan whose aggregates are not answered asks for its rows next.
        if (objection or answer.plan.unlisted) and (request.aggregates is None or not request.asks_for_rows):
            self.reports.add(answer.plan, request)
            if objection is not None:
                self._observe(PlannedQuery(request, settings, index.table, index.reading, answer))
        if request.aggregates is not None or not answer.plan.unlisted:
            return KEEP_ALL
        return serialize_dropped(BitMap(), answer.plan.note if settings.job_description else "")

    def _with_index(
        self, query: QueryRequest, functions: ColumnFunctions, request: Request, settings: Settings, index: ReadIndex
    ) -> bytes:
        schema, wanted = index.reading.schema, request.aggregates
        predicate, waiting = functions.with_contents(bind_filters(request, functions.decide)), []
        if settings.join_pruning:
            waiting = wanted_runtime_fields(request.runtime_fields, predicate, schema, index.view, pages=settings.pages)
        if wanted is not None:
            if wanted.declined:
                self.reports.withdraw(wanted.text, request)
            question = None if wanted.declined or not settings.aggregates else question_of(wanted, schema)
            if question is None:
                return KEEP_ALL
            query = replace(query, question=question, limits=settings.limits(strict=False, of_aggregates=True))
        elif not request.asks_for_rows and not (waiting and self.reports.is_explained(request)):
            return serialize_dropped(BitMap(), "", waiting) if waiting else KEEP_ALL
        implied = implied_by(request, schema, functions, waiting)
        first = first_rows(request.wanted, schema, settings)
        where = where_of(request, literals=True, for_people=True)
        answer = answer_query(replace(query, predicate=predicate, where=where, implied=implied, first_rows=first))
        if answer.troubles:
            newer = self._indexes.newer(index)
            if newer is not None:
                return serialize_view(newer.view)
            if settings.strict:
                raise PuffinIndexError(answer.troubles[0])
        if answer.plan.late:
            _log.info(
                "%s: planning took %d ms: %s", request.table, 1000 * answer.plan.planning_seconds, answer.plan.late
            )
        note = answer.plan.note if settings.job_description else ""
        if wanted is None:
            dropped = row_set_of(answer.scan.numbers[~answer.plan.kept_mask], index.view.row_group_count)
            serialized: bytes | None = serialize_dropped(dropped, note, waiting, answer.few.rows)
        else:
            serialized = serialize_answer(answer, wanted, note, settings.planning_milliseconds)
        if serialized is None:
            return KEEP_ALL
        self.reports.add(answer.plan, request)
        self._observe(PlannedQuery(request, settings, index.table, index.reading, answer))
        return serialized

    def _observe(self, query: PlannedQuery) -> None:
        if not self.reports.is_explained(query.request):
            self.observers.planned(query)
