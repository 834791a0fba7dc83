"""Lance: the same rows in its own format, with BTREE indexes on the two columns of the queries.

The dataset is made once, in the order of the table's rows, and kept with what making it took.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from ssb_bench.systems.protocol import Json, Worker, serve, sum_batches


class LanceWorker(Worker):
    """The dataset, made if it is not there."""

    def __init__(self, config: Json) -> None:
        import lance

        folder = Path(config["folder"])
        self._made = folder / "made.json"
        if not self._made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, config)
        self._version = lance.__version__
        self._dataset: Any = lance.dataset(str(folder / "lineorder.lance"))

    def facts(self) -> dict[str, object]:
        """Say the version, and what making the data and the index took."""
        made = json.loads(self._made.read_text(encoding="utf-8"))
        return {"version": f"Lance {self._version}", **made}

    def count(self, query: Json) -> int:
        """Count the matching rows."""
        return int(self._dataset.count_rows(filter=query["where"]))

    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows."""
        return sum_batches(self._dataset.scanner(filter=query["where"]).to_batches())


def _make(folder: Path, config: Json) -> None:
    import lance
    import pyarrow.dataset as ds

    path = folder / "lineorder.lance"
    folder.mkdir(parents=True)
    source = ds.dataset(sorted(str(file) for file in Path(config["files"]).glob("*.parquet")))
    started = time.perf_counter()
    dataset: Any = lance.write_dataset(source.scanner(batch_size=65_536).to_reader(), str(path))
    write_seconds = time.perf_counter() - started
    data_bytes = _bytes_under(path)
    started = time.perf_counter()
    for column in config["columns"]:
        dataset.create_scalar_index(column, index_type="BTREE")
    build_seconds = time.perf_counter() - started
    made = {
        "write_seconds": write_seconds,
        "data_bytes": data_bytes,
        "build_seconds": build_seconds,
        "index_bytes": _bytes_under(path) - data_bytes,
    }
    (folder / "made.json").write_text(json.dumps(made), encoding="utf-8")


def _bytes_under(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


if __name__ == "__main__":
    serve(LanceWorker)
