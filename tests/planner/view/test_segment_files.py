"""Files of segments: however many an index has, few are open at a time, and what was opened before still answers."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from planner.view.segment_files import SegmentFiles, SegmentReader
from puffin_index.errors import CorruptFileError, NotFoundError
from puffin_index.storage.files import READ_COUNT, NewFile, ReadCount
from puffin_index.storage.parts import Part, read_parts
from puffin_index.storage.ranged import Blob
from ssb_bench.stores.server import BUCKET, run_store
from ssb_bench.studies.scale import simulate
from tests.processes import run_python

pytest.importorskip("resource")

FILES_ALLOWED = 64
_PLAN_EVERYTHING = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES_ALLOWED}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO
from planner.prune.gate import Limits
from planner.prune.distributed import prune_row_groups
from planner.view.index_view import IndexView
from ssb_bench.studies.scale import SCENARIOS
with pa.memory_map(sys.argv[1]) as source:
    entries = pa.ipc.open_file(source).read_all()
view = IndexView("simulated", entries, PyArrowFileIO())
for _ in range(2):
    for name in ("sorted, equality", "postings, equality", "merged bloom, equality", "row sets, equality"):
        pruned = prune_row_groups(view, SCENARIOS[name], np.arange(view.row_group_count), Limits(strict=True))
        print(len(view.segments), name, int(pruned.kept.sum()) <= 0.01 * view.row_group_count)
"""


@pytest.mark.nightly
def test_an_index_of_many_segments_leaves_files_to_its_process(tmp_path: Path) -> None:
    """Payloads stay opened from one plan to the next; each that held its file would soon leave none to anybody."""
    simulated = simulate(tmp_path / "segments", 80_000, different=1)
    entries = tmp_path / "entries.arrow"
    with pa.OSFile(str(entries), "wb") as sink, pa.ipc.new_file(sink, simulated.entries.schema) as writer:
        writer.write_table(simulated.entries)

    lines = run_python(_PLAN_EVERYTHING, entries, seconds=120).stdout.splitlines()

    assert len(lines) == 8
    assert all(line.startswith("80 ") and line.endswith(" True") for line in lines)


def test_a_file_is_opened_again_when_it_fell_out_or_all_were_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = [(str(tmp_path / f"{number}.puffin"), 100) for number in range(3)]
    for number, (location, size) in enumerate(segments[:2]):
        Path(location).write_bytes(bytes([number]) * size)
    monkeypatch.setattr("planner.view.segment_files.most_open_files", lambda: 1)
    files = SegmentFiles(PyArrowFileIO())
    readers = [SegmentReader(files, *segment) for segment in segments]

    for _ in range(2):
        for number in range(2):
            assert bytes(readers[number].read(10, 5)) == bytes([number]) * 5
            assert (readers[number].location, readers[number].size) == segments[number]
        files.close()
    with pytest.raises(CorruptFileError, match=r"1\.puffin.*100 bytes"):
        readers[1].read(90, 20)
    with pytest.raises(NotFoundError, match=r"2\.puffin"):
        readers[2].read(0, 1)


def test_only_ranges_that_were_read_ahead_are_counted_as_read() -> None:
    """A range that could not be read ahead is counted when its reader asks for it."""
    with run_store() as store:
        io = PyArrowFileIO(store.properties)
        locations = [f"s3://{BUCKET}/{number}.puffin" for number in range(16)]
        for location in locations:
            with NewFile(io, location) as stream:
                stream.write(bytes(100))
        files = SegmentFiles(io)
        ends = [200, *([100] * 15)]
        token = READ_COUNT.set(ReadCount())
        try:
            with files.held(((location, 0, end) for location, end in zip(locations, ends, strict=True)), at_once=4):
                held = READ_COUNT.get()
                assert held is not None
                assert (held.requests, held.bytes) == (15, 1500)
                for location in locations:
                    assert len(files.read(location, 100, 0, 100)) == 100
        finally:
            READ_COUNT.reset(token)

    assert (held.requests, held.bytes) == (16, 1600)
    assert files.read_in_vain == 0


def test_what_each_item_reads_first_is_read_ahead_and_nothing_is_counted_twice() -> None:
    """Each item but two reads two distant parts at once, and then a third one."""
    size, distance = 100_000, 40_000
    calls: list[int] = []
    with run_store() as store:
        io = PyArrowFileIO(store.properties)
        files = SegmentFiles(io)
        readers = [SegmentReader(files, f"s3://{BUCKET}/{number}.puffin", size) for number in range(16)]
        for number, reader in enumerate(readers):
            with NewFile(io, reader.location) as stream:
                stream.write(bytes([number]) * size)

        def read(number: int) -> bytes | str:
            calls.append(number)
            if number == 16:
                return "nothing is read"
            blob = Blob(readers[number % 16], 0, size)
            try:
                if number == 17:
                    return bytes(blob.read(size - 1, 2))
                first = read_parts(blob, [Part(place * distance, 10) for place in range(2)])
                return b"".join([*first, blob.read(2 * distance, 10)])
            except CorruptFileError:
                return "beyond the end"

        counted = ReadCount()
        token = READ_COUNT.set(counted)
        try:
            found = files.each_ahead(read, range(18), at_once=4)
        finally:
            READ_COUNT.reset(token)
        with pytest.raises(ZeroDivisionError):
            files.each_ahead(lambda number: 1 // number, [0], at_once=4)

        assert found == [*(bytes([number]) * 30 for number in range(16)), "nothing is read", "beyond the end"]
        assert sorted(calls) == sorted([*range(18), *range(16)])
        assert (counted.requests, counted.bytes) == (48, 480)
        assert (files.read_ahead, files.read_in_vain) == (32, 0)
        assert bytes(readers[1].read(0, 1)) == b"\x01"
