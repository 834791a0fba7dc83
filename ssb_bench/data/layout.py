"""Where the benchmark keeps things: one directory for each scale factor under the data directory.

DATA/sf1/tpch/       TPC-H Parquet files while the SSB tables are made from them (kept on request)
DATA/sf1/ssb/        the SSB tables as Parquet, and `dataset.json`, written last
DATA/sf1/warehouse/  the Iceberg catalog (SQLite) and its tables, `load.json` and `load_default.json`
DATA/sf1/runs/       one JSON and one PNG for each execution of a study
DATA/sf1/all/        the last JSON of each study, and the page of them

Records are dataclasses as JSON.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlparse

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from puffin_index.errors import PuffinIndexError

SSB_TABLES: Final = ("lineorder", "customer", "supplier", "part", "date")
NAMESPACE: Final = "ssb"


class BenchError(PuffinIndexError):
    """A benchmark cannot go on; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories of one scale factor, where 1 stands for 6,000,000 lineorder rows."""

    root: Path
    scale_factor: float
    warehouse: Path

    @classmethod
    def of(cls, data: Path, scale_factor: float) -> Layout:
        """Name the directories of `scale_factor` under `data`, making none of them."""
        if not 0.001 <= scale_factor <= 1000:
            raise BenchError(f"scale factor {scale_factor:g} is outside 0.001 to 1000")
        root = data.expanduser().absolute() / f"sf{scale_factor:g}"
        return cls(root, scale_factor, root / "warehouse")

    @property
    def tpch(self) -> Path:
        """The directory of the TPC-H files."""
        return self.root / "tpch"

    @property
    def ssb(self) -> Path:
        """The directory of the SSB files."""
        return self.root / "ssb"

    def result(self, study: str) -> Path:
        """Name the file with the last result of a study."""
        return self.root / "all" / f"{study}.json"

    @property
    def dataset_json(self) -> Path:
        """The file that says that the SSB files are complete."""
        return self.ssb / "dataset.json"

    def files(self, table: str) -> list[Path]:
        """List the Parquet files of an SSB table, in the order of its rows."""
        return sorted((self.ssb / table).glob("*.parquet"))


def local_path(location: str) -> Path:
    """Give the path of a local file by its location (a path or a `file:` URI)."""
    return Path(unquote(urlparse(location).path))


T = TypeVar("T")


def write_record(path: Path, record: object) -> None:
    """Write a dataclass, so that the file is there completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(to_jsonable_python(record), indent=2) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def read_record(path: Path, kind: type[T]) -> T | None:
    """Read what `write_record` wrote, None without such a file.

    Raises BenchError if the file lacks a field, has one too many, or is not JSON.
    """
    if not path.exists():
        return None
    # pydantic takes no configuration for a dataclass of the standard library, but for a tuple of one.
    adapter = TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid"))  # type: ignore[valid-type]
    try:
        return adapter.validate_python((json.loads(path.read_text(encoding="utf-8")),))[0]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:]))
        raise BenchError(f"{path} is not a whole {kind.__name__}: {place}: {first['msg']}") from error
    except ValueError as error:
        raise BenchError(f"{path} is not JSON: {error}") from error
