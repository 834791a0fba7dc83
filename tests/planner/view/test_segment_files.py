"""Files of segments: however many an index has, few are open at a time, and what was opened before still answers."""

import sys
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from planner.prune.distributed import prune_row_groups
from planner.prune.gate import Limits
from planner.view.index_view import IndexView
from planner.view.segment_files import SegmentFiles, SegmentReader
from puffin_index.errors import CorruptFileError, NotFoundError
from puffin_index.storage.files import NewFile, ReadCount
from puffin_index.storage.ranged import Blob, BytesReader, Wanted
from ssb_bench.stores.server import BUCKET, run_store
from ssb_bench.studies.scale import SCENARIOS, simulate


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells which files are open")
def test_an_index_of_many_segments_leaves_files_to_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payloads stay opened from one plan to the next; each that held its file would soon leave none to anybody."""
    monkeypatch.setattr("planner.view.segment_files.most_open_files", lambda: 2)
    view = IndexView("simulated", simulate(tmp_path / "segments", 2_100, different=1), PyArrowFileIO())
    assert len(view.segments) == 3
    for name in ("sorted, equality", "postings, equality", "merged bloom, equality", "row sets, equality") * 2:
        pruned = prune_row_groups(view, SCENARIOS[name], np.arange(view.row_group_count), Limits(strict=True))
        assert pruned.kept.any(), name
        opened = [file.resolve() for file in Path("/proc/self/fd").iterdir()]
        assert len([file for file in opened if tmp_path in file.parents]) <= 2, name


def test_a_file_is_opened_again_once_it_fell_out_or_was_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_readings_want_is_read_side_by_side_and_near_ranges_as_one() -> None:
    """What cannot be read is not counted: its reader asks for it alone, and gets the error."""
    size, distance = 100_000, 40_000
    with run_store() as store:
        io = PyArrowFileIO(store.properties)
        files = SegmentFiles(io)
        readers = [SegmentReader(files, f"s3://{BUCKET}/{number}.puffin", size) for number in range(16)]
        for number, reader in enumerate(readers):
            with NewFile(io, reader.location) as stream:
                stream.write(bytes([number]) * size)
        blobs = [Blob(reader, 0, size) for reader in readers]
        in_memory = Blob(BytesReader.of(b"0123"), 1, 2)
        missing = Blob(SegmentReader(files, f"s3://{BUCKET}/missing.puffin", size), 0, size)

        for some in (blobs, blobs[:3]):
            wanted: list[Wanted] = [[(blob, (0, 10)), (blob, (distance, 10))] for blob in some]
            wanted += [[(some[1], (5, 10)), (in_memory, (0, 2))], [(missing, (0, 1))], [(some[0], (size - 1, 2))]]
            counted = ReadCount()
            *found, both, none, beyond = files.fetch(wanted, 4, counted)

            assert [b"".join(own or []) for own in found] == [bytes([number]) * 20 for number in range(len(some))]
            assert [bytes(data) for data in both or []] == [b"\x01" * 10, b"12"]
            assert (none, beyond) == (None, None)
            assert (counted.requests, counted.bytes) == (2 * len(some), 20 * len(some) + 5)
