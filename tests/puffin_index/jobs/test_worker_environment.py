"""Which processors sort slowly with AVX-512, told from what Linux says of them."""

from pathlib import Path

import numpy as np
import pytest

from puffin_index.jobs.worker_pool import environment_of_workers

ZEN_4 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
flags\t\t: fpu sse2 avx2 avx512f avx512dq

processor\t: 1
vendor_id\t: AuthenticAMD
"""
NAMED = np.lib.NumpyVersion(np.__version__) >= "2.4.0"


def told(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "cpuinfo"
    file.write_text(text, encoding="ascii")
    return file


@pytest.mark.skipif(not NAMED, reason="this numpy has another name for it")
def test_workers_on_zen_4_do_without_avx_512(tmp_path: Path) -> None:
    assert environment_of_workers({}, told(tmp_path, ZEN_4)) == {"NPY_DISABLE_CPU_FEATURES": "X86_V4"}


def test_what_somebody_has_set_stays(tmp_path: Path) -> None:
    assert environment_of_workers({"NPY_DISABLE_CPU_FEATURES": ""}, told(tmp_path, ZEN_4)) == {}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ZEN_4.replace("25", "26"), id="Zen 5"),
        pytest.param(ZEN_4.replace(" avx512f", ""), id="Zen 3"),
        pytest.param(ZEN_4.replace("AuthenticAMD", "GenuineIntel"), id="Intel"),
        pytest.param("Processor : ARMv8\nFeatures : fp asimd\n", id="ARM"),
        pytest.param("", id="nothing"),
    ],
)
def test_other_processors_keep_what_they_have(tmp_path: Path, text: str) -> None:
    assert environment_of_workers({}, told(tmp_path, text)) == {}


def test_a_system_that_tells_nothing_is_left_alone(tmp_path: Path) -> None:
    assert environment_of_workers({}, tmp_path / "missing") == {}
