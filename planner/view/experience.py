"""What earlier plans of a view have found, against what was expected."""

from __future__ import annotations

import threading

import numpy as np

from planner.condition.tree.nodes import Leaf
from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.map_key import ColumnId
from puffin_index.storage.arrays import Floats

_MOST_RATIO = 64.0

_MOST_PRESENCE = 0.9
"""Experience makes no presence surer than this: a test that is never asked again could not be learned again."""


class Experience:
    """How much more often than expected tests of a column held, by column and kind of test: corrects later estimates.

    Safe between threads. A view has few columns, so this stays small.
    """

    def __init__(self) -> None:
        self._ratios: dict[tuple[ColumnId, type[LeafTest]], float] = {}
        self._lock = threading.Lock()

    def note(self, leaf: Leaf, expected: float, found: int) -> None:
        """Note in how many row groups a leaf was expected by corrected estimates, and in how many it was found."""
        key = leaf.field_id, type(leaf.test)
        with self._lock:
            # The root averages over several plans.
            ratio = self._ratios.get(key, 1.0) * ((found + 1) / (expected + 1)) ** 0.5
            self._ratios[key] = min(max(ratio, 1 / _MOST_RATIO), _MOST_RATIO)

    def corrected(self, leaf: Leaf, presence: Floats) -> Floats:
        """Correct the estimated presence of a leaf in row groups, where it is not proved."""
        ratio = self._ratios.get((leaf.field_id, type(leaf.test)), 1.0)
        if ratio == 1:
            return presence
        likely = np.minimum(1 - (1 - presence) ** ratio, np.maximum(presence, _MOST_PRESENCE))
        return np.where(presence < 1, likely, presence)
