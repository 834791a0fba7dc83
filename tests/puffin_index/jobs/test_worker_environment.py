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


@pytest.mark.parametrize(
    ("text", "set_before", "expected"),
    [
        pytest.param(ZEN_4, {}, {"NPY_DISABLE_CPU_FEATURES": "X86_V4"} if NAMED else {}, id="Zen 4"),
        pytest.param(ZEN_4, {"NPY_DISABLE_CPU_FEATURES": ""}, {}, id="Zen 4, but somebody has set it"),
        pytest.param(ZEN_4.replace("25", "26"), {}, {}, id="Zen 5"),
        pytest.param(ZEN_4.replace(" avx512f", ""), {}, {}, id="Zen 3"),
        pytest.param(ZEN_4.replace("AuthenticAMD", "GenuineIntel"), {}, {}, id="Intel"),
        pytest.param("Processor : ARMv8\nFeatures : fp asimd\n", {}, {}, id="ARM"),
        pytest.param("", {}, {}, id="nothing"),
        pytest.param(None, {}, {}, id="no such file"),
    ],
)
def test_workers_on_zen_4_alone_do_without_avx_512(
    tmp_path: Path, text: str | None, set_before: dict[str, str], expected: dict[str, str]
) -> None:
    file = tmp_path / "cpuinfo"
    if text is not None:
        file.write_text(text, encoding="ascii")
    assert environment_of_workers(set_before, file) == expected
