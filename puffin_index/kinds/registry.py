"""The registry of index kinds: one line each."""

from puffin_index.errors import DefinitionError, did_you_mean
from puffin_index.keys.leaf import LeafTest
from puffin_index.kinds.bitmap.kind import BitmapKind
from puffin_index.kinds.bloom.kind import BloomKind
from puffin_index.kinds.bsi.kind import BitSlicedKind
from puffin_index.kinds.kind import Answer, IndexKind

KINDS: dict[str, IndexKind] = {kind.name: kind for kind in (BitmapKind(), BitSlicedKind(), BloomKind())}
"""The kinds by name, in the order of building: bitmaps sort rows with the keys, and the other kinds reuse the keys."""


def kind_named(name: str) -> IndexKind:
    """Return the kind of a name, or raise DefinitionError if no kind has the name."""
    if name not in KINDS:
        raise DefinitionError(f"unknown index kind {name!r}; known: {', '.join(KINDS)}{did_you_mean(name, KINDS)}")
    return KINDS[name]


def kinds_answering(test: LeafTest, answer: Answer) -> list[IndexKind]:
    """Return the kinds that give exactly this answer to a test, in the order to ask them."""
    return sorted((kind for kind in KINDS.values() if kind.answers(test) == answer), key=lambda kind: kind.rank(test))


def kinds_holding_keys() -> list[IndexKind]:
    """Return the kinds whose payloads hold the key of each row."""
    return [kind for kind in KINDS.values() if kind.holds_keys]
