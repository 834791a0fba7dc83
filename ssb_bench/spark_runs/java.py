"""Find a Java that Spark 4.1 can run on, or say in one sentence what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ssb_bench.errors import BenchError

OLDEST_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')


def require_java() -> int:
    """Give the major version of the Java that Spark will start.

    Raises:
        BenchError: If there is no Java, or the Java is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install Java {OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    if java is None:
        raise BenchError(f"Spark needs Java and there is none: {advice}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        raise BenchError(f"{java} does not start ({error}): {advice}") from error
    match = _VERSION.search(said)
    if match is None or int(match[1]) < OLDEST_JAVA:
        raise BenchError(f"{java} is Java {match[1] if match else 'of an unknown version'}: {advice}")
    return int(match[1])
