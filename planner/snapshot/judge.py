"""The verdicts on all row groups of a scan."""

from dataclasses import replace

import numpy as np

from planner.clock import Clock
from planner.condition.tree.nodes import Predicate
from planner.first_rows.search import Enough, FirstRows, prune_first_rows
from planner.prune.distributed import Executors
from planner.prune.gate import Limits
from planner.prune.verdicts import Reason
from planner.snapshot.scan import Scan, keep_whole_files
from planner.snapshot.subtract_deletes import subtract_deletes
from planner.view.cache import SharedPayloads


def judge(
    scan: Scan,
    predicate: Predicate,
    limits: Limits,
    wanted: FirstRows | None = None,
    executors: Executors | None = None,
    shared: SharedPayloads | None = None,
) -> Enough:
    """Judge the row groups of a scan, those without an index included, and subtract deletes.

    `shared` keeps what is opened of some columns. Raises PuffinIndexError on index trouble, if the limits are strict.
    """
    clock, here = Clock(limits.seconds), slice(None) if scan.is_indexed.all() else scan.is_indexed
    enough = prune_first_rows(
        scan.view, predicate, scan.numbers[here], ~scan.has_deletes[here], wanted, limits, executors, shared
    )
    count = len(scan.numbers)
    reasons, matches = np.full(count, Reason.UNINDEXED, np.uint8), np.full(count, -1, np.int64)
    reasons[here], matches[here] = enough.pruned.reasons, enough.pruned.matches
    dropped = None
    if enough.dropped is not None:
        dropped = np.zeros(count, np.bool_)
        dropped[here] = enough.dropped
    # With deletes, a count is an upper bound until deleted rows are subtracted.
    matches[scan.has_deletes & (matches > 0)] = -1
    verdicts = replace(enough.pruned, reasons=reasons, matches=matches)
    pruned = subtract_deletes(scan, predicate, verdicts, clock, limits)
    pruned = replace(pruned, reasons=keep_whole_files(pruned.reasons, scan.file_of, scan.is_read_whole))
    return replace(enough, pruned=pruned, dropped=dropped)
