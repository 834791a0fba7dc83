"""What index views keep in memory: directories, opened payloads and what others keep of payloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from planner.view.cache import DEFAULT_BYTES, BoundedCache
from planner.view.directories import FieldStatistics, KindDirectory
from planner.view.segment_files import SegmentReader
from puffin_index.keys.columns import KeyArray
from puffin_index.kinds.base import MergedFilter, MergedIndex
from puffin_index.segments.directory import Directory
from puffin_index.storage.caches import cleared_by
from puffin_index.storage.parts import PartReader

_OBJECT_BYTES = 4096
"""What objects take beside the content of their arrays: of small tables, nearly all."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenPayload:
    """An opened payload that covers several row groups, with what was read of its directory.

    Attributes:
        reader: What reads its segment.
        payload: The payload.
        first: The row group of the segment that it begins with.
    """

    reader: SegmentReader
    payload: MergedIndex | MergedFilter
    first: int

    @property
    def nbytes(self) -> int:
        """The memory that it takes, about."""
        return self.payload.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class KeyList:
    """The distinct keys of a payload, ascending."""

    keys: KeyArray

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return int(self.keys.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class StoredDirectory:
    """The bytes of a directory that nobody has asked for yet."""

    reader: PartReader

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return len(self.reader.data)


class Kept(Protocol):
    """What somebody keeps of a payload."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""


KeptForm = TypeVar("KeptForm", bound=Kept)
Cached: TypeAlias = FieldStatistics | StoredDirectory | KindDirectory | Directory | OpenPayload | KeyList | Kept
IndexCache: TypeAlias = BoundedCache[object, Cached]


def new_cache(limit: int = DEFAULT_BYTES) -> IndexCache:
    """Make a cache for directories and opened payloads of views, of so many bytes."""
    return BoundedCache(limit, lambda value: _OBJECT_BYTES + int(value.nbytes))


CACHE = new_cache()
"""What all views of this process share, unless they are given a cache of their own."""
cleared_by(CACHE.clear)
