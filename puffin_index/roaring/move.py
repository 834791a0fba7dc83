"""Assemble row sets from the containers of others: containers move to new keys and are never decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from puffin_index.errors import CorruptFileError
from puffin_index.roaring.union import BrokenSetError, parse_containers, require, uint16_at
from puffin_index.roaring.write import ARRAY_LIMIT, BLOCK_BYTES, BLOCK_ROWS, Containers, SerializedSets, lay_out_sets
from puffin_index.storage.arrays import Bytes, Flags, Ints
from puffin_index.storage.many_ranges import put_bytes, take_bytes


@dataclass(frozen=True, slots=True, eq=False)
class LooseContainers:
    """Containers of some sets: arrays of one length, in any order.

    Attributes:
        sets: The set of each container.
        blocks: The key of each container: the upper 16 bits of its rows.
        cardinalities: The number of rows of each container.
        are_runs: Whether each container holds runs.
        data: The bytes of all containers.
        starts: The start of each container in `data`.
        sizes: The length of each container in bytes.
    """

    sets: Ints
    blocks: Ints
    cardinalities: Ints
    are_runs: Flags
    data: Bytes
    starts: Ints
    sizes: Ints

    def __len__(self) -> int:
        return len(self.sets)

    def moved(self, sets: Ints, blocks: Ints) -> LooseContainers:
        """Return the containers with new sets and new keys; a negative key drops a container."""
        kept = blocks >= 0
        return LooseContainers(
            sets[kept],
            blocks[kept],
            self.cardinalities[kept],
            self.are_runs[kept],
            self.data,
            self.starts[kept],
            self.sizes[kept],
        )


def containers_of_sets(
    data: memoryview, starts: Ints, lengths: Ints, *, location: str = "<bytes>", offset: int = 0
) -> LooseContainers:
    """Return the containers of serialised row sets; sets are numbered in the order of `starts`.

    Args:
        data: The bytes.
        starts: The start of each set.
        lengths: The length of each set.
        location: The file, for error messages.
        offset: The start of `data` in the file, for error messages.

    Raises:
        CorruptFileError: If a set is damaged.
    """
    raw = np.frombuffer(data, np.uint8)
    try:
        require((starts >= 0) & (lengths >= 8) & (starts + lengths <= len(raw)), "it leaves its blob")
        parsed = parse_containers(raw, starts, starts + lengths)
        sizes = np.where(parsed.cardinalities > ARRAY_LIMIT, BLOCK_BYTES, 2 * parsed.cardinalities)
        run_bytes = 2 + 4 * uint16_at(raw, parsed.starts[parsed.are_runs])
        sizes[parsed.are_runs] = run_bytes
        require(parsed.starts + sizes <= parsed.ends_of_sets, "a container is cut short")
    except BrokenSetError as error:
        raise CorruptFileError(f"not a row set: {error}", location=location, offset=offset) from error
    blocks = parsed.bases // BLOCK_ROWS
    return LooseContainers(parsed.sets, blocks, parsed.cardinalities, parsed.are_runs, raw, parsed.starts, sizes)


def containers_of_rows(sets: Ints, rows: Ints) -> LooseContainers:
    """Return containers of one row each."""
    count = len(rows)
    data = (rows % BLOCK_ROWS).astype("<u2").view(np.uint8)
    ones = np.ones(count, np.int64)
    return LooseContainers(
        sets, rows // BLOCK_ROWS, ones, np.zeros(count, np.bool_), data, 2 * np.arange(count), 2 * ones
    )


def joined(parts: Sequence[LooseContainers]) -> LooseContainers:
    """Return all containers of several parts; at least one."""
    before = np.cumsum([0, *(len(part.data) for part in parts)]).tolist()
    return LooseContainers(
        np.concatenate([part.sets for part in parts]),
        np.concatenate([part.blocks for part in parts]),
        np.concatenate([part.cardinalities for part in parts]),
        np.concatenate([part.are_runs for part in parts]),
        np.concatenate([part.data for part in parts]),
        np.concatenate([part.starts + start for part, start in zip(parts, before, strict=False)]),
        np.concatenate([part.sizes for part in parts]),
    )


def assemble_sets(containers: LooseContainers, set_count: int) -> SerializedSets:
    """Serialise the sets of containers; each set must have a container.

    Raises:
        BrokenSetError: If two containers of a set have the same key, or containers overlap.
    """
    places = containers.sets * BLOCK_ROWS + containers.blocks
    order = np.argsort(places, kind="stable")
    require(places[order][1:] > places[order][:-1], "two containers of one key")
    starts, sizes = containers.starts[order], containers.sizes[order]
    by_start = np.argsort(starts, kind="stable")
    # `take_bytes` needs disjoint ranges, and only damaged sets share bytes.
    require((starts + sizes)[by_start][:-1] <= starts[by_start][1:], "containers that overlap")
    are_runs = containers.are_runs[order]
    table = Containers(
        containers.sets[order],
        containers.blocks[order].astype(np.uint16),
        containers.cardinalities[order],
        np.where(are_runs, (sizes - 2) // 4, 0),
    )
    frame = lay_out_sets(table, are_runs, set_count, 0)
    put_bytes(frame.sets.data, frame.starts, sizes, take_bytes(containers.data, starts, sizes))
    return frame.sets
