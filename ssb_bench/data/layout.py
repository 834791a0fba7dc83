"""Where the benchmark keeps things: one directory for each scale factor under the data directory.

DATA/sf1/tpch/       TPC-H Parquet files while the SSB tables are made from them (kept on request)
DATA/sf1/ssb/        the SSB tables as Parquet, and `dataset.json`, written last
DATA/sf1/warehouse/  the Iceberg catalog (SQLite) and its tables, and `load.json`
DATA/sf1/runs/       one JSON and one PNG for each run
DATA/sf1/all/        the last JSON of each study, the times of the steps of `all`, and its page
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from ssb_bench.errors import BenchError

SSB_TABLES: Final = ("lineorder", "customer", "supplier", "part", "date")
NAMESPACE: Final = "ssb"
LARGEST_SCALE_FACTOR: Final = 1000.0
SMALLEST_SCALE_FACTOR: Final = 0.001


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories of one scale factor.

    Attributes:
        root: `DATA/sf<scale factor>`.
        scale_factor: 1 stands for 6,000,000 lineorder rows.
        warehouse: The directory of the Iceberg catalog and its tables, `warehouse` in the root by default.
    """

    root: Path
    scale_factor: float
    warehouse: Path

    @classmethod
    def of(cls, data: Path, scale_factor: float, *, warehouse: Path | None = None) -> Layout:
        """Name the directories of `scale_factor` under `data`, making none of them.

        Raises:
            BenchError: If the scale factor is outside 0.001 … 1000.
        """
        if not math.isfinite(scale_factor) or not SMALLEST_SCALE_FACTOR <= scale_factor <= LARGEST_SCALE_FACTOR:
            raise BenchError(
                f"scale factor {scale_factor:g} is outside {SMALLEST_SCALE_FACTOR:g} to {LARGEST_SCALE_FACTOR:g}"
            )
        root = data.expanduser().absolute() / f"sf{scale_factor:g}"
        return cls(root, scale_factor, warehouse or root / "warehouse")

    @property
    def data(self) -> Path:
        """The data directory, which has all scale factors."""
        return self.root.parent

    @property
    def tpch(self) -> Path:
        """The directory of the TPC-H files."""
        return self.root / "tpch"

    @property
    def ssb(self) -> Path:
        """The directory of the SSB files."""
        return self.root / "ssb"

    @property
    def runs(self) -> Path:
        """The directory of the results."""
        return self.root / "runs"

    @property
    def results(self) -> Path:
        """The directory with the last result of each study."""
        return self.root / "all"

    def result(self, study: str) -> Path:
        """Name the file with the last result of a study."""
        return self.results / f"{study}.json"

    @property
    def dataset_json(self) -> Path:
        """The file that says that the SSB files are complete."""
        return self.ssb / "dataset.json"

    @property
    def load_json(self) -> Path:
        """The file that says that the Iceberg tables are complete."""
        return self.warehouse / "load.json"

    def files(self, table: str) -> list[Path]:
        """List the Parquet files of an SSB table, in the order of its rows.

        Raises:
            BenchError: If the table has no file yet.
        """
        files = sorted((self.ssb / table).glob("*.parquet"))
        if not files:
            raise BenchError(f"no data for SSB table {table} under {self.ssb}: run `ssb-bench generate` first")
        return files


def local_path(location: str) -> Path:
    """Give the path of a local file by its location (a path or a `file:` URI)."""
    return Path(unquote(urlparse(location).path))
