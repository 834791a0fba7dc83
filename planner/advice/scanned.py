"""The row groups that a scan reads without any index, and the bytes of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.snapshot.snapshot_files import ScanFile
from puffin_index.data.data_table import DataFile
from puffin_index.storage.arrays import Floats, Ints


@dataclass(frozen=True)
class Scanned:
    """The row groups that Iceberg's own pruning leaves. A file whose manifest lists no row groups counts as one.

    Attributes:
        files: The data files.
        file_of: For each row group the number of its data file.
        ordinals: For each row group its ordinal in the data file.
    """

    files: tuple[ScanFile, ...]
    file_of: Ints
    ordinals: Ints

    def __len__(self) -> int:
        return len(self.file_of)

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """The data files."""
        return tuple(scanned.file for scanned in self.files)

    @cached_property
    def row_group_bytes(self) -> Floats:
        """The bytes of each row group: from one start of a row group to the next, or an equal share of the file."""
        counts = np.bincount(self.file_of, minlength=len(self.files))
        parts = [_bytes_of_row_groups(one.file, int(count)) for one, count in zip(self.files, counts, strict=True)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def column_bytes(self, field_ids: Collection[int] | None) -> Floats:
        """The bytes of some columns in each row group; of all columns where the manifests do not say, or for None."""
        if field_ids is None:
            return self.row_group_bytes
        shares = np.array([_share_of_columns(scanned, field_ids) for scanned in self.files], np.float64)
        return self.row_group_bytes * shares[self.file_of]


def _bytes_of_row_groups(file: DataFile, count: int) -> Floats:
    offsets = np.sort(np.array(file.split_offsets, np.float64))
    if len(offsets) != count or not count:
        return np.full(count, file.file_size / max(1, count))
    return np.diff(np.append(offsets, file.file_size))


def _share_of_columns(scanned: ScanFile, field_ids: Collection[int]) -> float:
    sizes = scanned.entry.column_sizes or {}
    total = sum(sizes.values())
    known = sizes.keys() & set(field_ids)
    return sum(sizes[field_id] for field_id in known) / total if known else 1.0
