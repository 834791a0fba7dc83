"""Where the benchmark keeps things: one directory for each scale factor under the data directory.

DATA/sf1/tpch/       TPC-H Parquet files while the SSB tables are made from them (kept on request)
DATA/sf1/ssb/        the SSB tables as Parquet, and `dataset.json`, written last
DATA/sf1/warehouse/  the Iceberg catalog (SQLite) and its tables, and `load.json`
DATA/sf1/runs/       one JSON and one PNG for each execution of a study
DATA/sf1/all/        the last JSON of each study, and the page of them

Records are dataclasses as JSON. A class with a `FORMAT` writes that name into its files, and refuses others.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlparse

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from puffin_index.errors import PuffinIndexError

SSB_TABLES: Final = ("lineorder", "customer", "supplier", "part", "date")
NAMESPACE: Final = "ssb"
LARGEST_SCALE_FACTOR: Final = 1000.0
SMALLEST_SCALE_FACTOR: Final = 0.001


class BenchError(PuffinIndexError):
    """A benchmark cannot go on; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories of one scale factor, where 1 stands for 6,000,000 lineorder rows."""

    root: Path
    scale_factor: float
    warehouse: Path

    @classmethod
    def of(cls, data: Path, scale_factor: float, *, warehouse: Path | None = None) -> Layout:
        """Name the directories of `scale_factor` under `data`, making none of them.

        Raises BenchError if the scale factor is outside 0.001 … 1000.
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

    def result(self, study: str) -> Path:
        """Name the file with the last result of a study."""
        return self.root / "all" / f"{study}.json"

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

        Raises BenchError if the table has no file yet.
        """
        files = sorted((self.ssb / table).glob("*.parquet"))
        if not files:
            raise BenchError(f"no data for SSB table {table} under {self.ssb}: run `ssb-bench generate` first")
        return files


def local_path(location: str) -> Path:
    """Give the path of a local file by its location (a path or a `file:` URI)."""
    return Path(unquote(urlparse(location).path))


T = TypeVar("T")


def write_record(path: Path, record: object) -> None:
    """Write a dataclass, or a dict of dataclasses, so that the file is there completely or not at all."""
    file_format = getattr(record, "FORMAT", None)
    content = ({} if file_format is None else {"format": file_format}) | to_jsonable_python(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def read_record(path: Path, kind: type[T]) -> T:
    """Read what `write_record` wrote.

    Raises BenchError if the file is not there, is not JSON or of another format, lacks a field or has one too many.
    """
    found = read_if_there(path, kind)
    if found is None:
        raise BenchError(f"there is no {path}")
    return found


def read_if_there(path: Path, kind: type[T]) -> T | None:
    """Read what `write_record` wrote, or give None without such a file. Raises BenchError as `read_record` does."""
    if not path.exists():
        return None
    try:
        # Any: what json.loads gives has no narrower type.
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BenchError(f"{path} is not JSON: {error}") from error
    file_format = getattr(kind, "FORMAT", None)
    if file_format is not None and (not isinstance(content, dict) or content.pop("format", None) != file_format):
        raise BenchError(f"{path} is not of format {file_format}")
    # pydantic takes no configuration for a dataclass of the standard library, but for a tuple of one.
    adapter = TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid"))  # type: ignore[valid-type]
    try:
        return adapter.validate_python((content,))[0]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:]))
        raise BenchError(f"{path} is not a whole {kind.__name__}: {place}: {first['msg']}") from error
