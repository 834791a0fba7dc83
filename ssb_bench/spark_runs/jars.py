"""Java archives by coordinates and SHA-256 (`jars.txt`): fetched once, one process at a time, before Spark starts.

`python -m ssb_bench.spark_runs.jars [PATTERN …]` fetches some, or what the tests need with the installed Spark.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pyspark
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from ssb_bench.data.layout import BenchError

SPARK_RELEASE: Final = ".".join(pyspark.__version__.split(".")[:2])
SPARK_JARS: Final = Path(next(iter(pyspark.__path__))) / "jars"
_SQLITE_DRIVER: Final = "sqlite-jdbc"
S3_SUPPORT: Final = "iceberg-aws-bundle"
"""What Iceberg reads S3 with; Spark's session needs it from its start."""

SERVICES: Final = {"4.1": (S3_SUPPORT, "postgresql"), "4.0": ("postgresql",)}.get(SPARK_RELEASE, ())
"""What the tests' services need; only the newest release is tried on all of them."""

PAIMON: Final = "paimon-bundle"
_LOCKED: Final = Path(__file__).with_name("jars.txt")
_MODULE: Final = Path(__file__).with_name("ivy.xml")
_CLONE: Final = Path(__file__).parents[2]
_TIMEOUT_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class Jar:
    """A Java archive of a Maven repository: `group:artifact:version[:classifier]`, and its checksum in hexadecimal."""

    coordinate: str
    sha256: str

    @property
    def artifact(self) -> str:
        """The second part of the coordinate."""
        return self.coordinate.split(":")[1]

    @property
    def file_name(self) -> str:
        """The name that Maven's repositories give to the file."""
        return "-".join(self.coordinate.split(":")[1:]) + ".jar"


def jars_named(pattern: str) -> list[Jar]:
    """Look archives up in `jars.txt`, by a pattern of the shell; raise BenchError if there is none."""
    lines = _LOCKED.read_text(encoding="utf-8").splitlines()
    jars = [Jar(*line.split()) for line in lines if not line.startswith("#")]
    found = [jar for jar in jars if fnmatchcase(jar.artifact, pattern)]
    if not found:
        raise BenchError(f"{_LOCKED.name} has no archive {pattern}")
    return found


def iceberg_runtime() -> Jar:
    """Give Iceberg's newest runtime for the Spark that is installed; raise BenchError if there is none."""
    scala = "2.12" if SPARK_RELEASE == "3.5" else "2.13"
    return jars_named(f"iceberg-spark-runtime-{SPARK_RELEASE}_{scala}")[0]


def jars_folder() -> Path:
    """Return the folder of fetched archives: `.jars` of a clone, otherwise one in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return _CLONE / ".jars" if (_CLONE / "pyproject.toml").exists() else cache / "puffin-index" / "jars"


def local_jars(*patterns: str) -> list[Path]:
    """Give the files of archives, by patterns, in the given order; those that are missing are fetched.

    Only one process fetches at a time. Raises BenchError if an archive cannot be fetched, or is not the one that
    `jars.txt` names.
    """
    jars, folder = [jar for pattern in patterns for jar in jars_named(pattern)], jars_folder()
    paths = [folder / jar.file_name for jar in jars]
    if not all(path.exists() for path in paths):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for jar, path in zip(jars, paths, strict=True):
                if not path.exists():
                    _fetch(jar, folder)
    return paths


def session_jars(*artifacts: str) -> list[Path]:
    """Give the files of what each session needs, and of other archives, as `local_jars` does."""
    return local_jars(iceberg_runtime().artifact, _SQLITE_DRIVER, *artifacts)


@retry(
    retry=retry_if_exception_type(BenchError), stop=stop_after_attempt(3), wait=wait_exponential(max=2), reraise=True
)
def _fetch(jar: Jar, folder: Path) -> None:
    """Bring an archive into a folder, once it is whole and checked; the caller has the lock.

    The Ivy that PySpark brings does it; a file that `IVY_SETTINGS` names tells Ivy of mirrors.
    """
    print(f"fetching {jar.file_name}", file=sys.stderr)  # noqa: T201
    home, settings = os.environ.get("JAVA_HOME"), os.environ.get("IVY_SETTINGS")
    *coordinate, classifier = (*jar.coordinate.split(":"), "")[:4]
    module = _MODULE.read_text(encoding="utf-8").format(
        *coordinate, f' m:classifier="{classifier}"' if classifier else ""
    )
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetching-") as place:
        fetched = Path(place, f"{jar.artifact}.jar")
        Path(place, "ivy.xml").write_text(module, encoding="utf-8")
        command = [f"{home}/bin/java" if home else "java", "-cp", f"{SPARK_JARS}/*", "org.apache.ivy.Main", "-warn"]
        command += ["-settings", settings] if settings else []
        command += ["-cache", f"{place}/cache", "-ivy", f"{place}/ivy.xml", "-retrieve", f"{place}/[artifact].[ext]"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
            said = done.stdout + done.stderr
        except (OSError, subprocess.SubprocessError) as error:
            said = f"{error}"
        if not fetched.exists():
            raise BenchError(
                f"{jar.file_name} ({jar.coordinate}) cannot be fetched: try again, or put the file into {folder}. "
                f"Ivy says: {' '.join(word for word in said.split() if word.strip(':'))[-500:]}"
            )
        digest = hashlib.sha256(fetched.read_bytes()).hexdigest()
        if digest != jar.sha256:
            raise BenchError(
                f"{jar.file_name} has the SHA-256 {digest}, and {_LOCKED.name} says {jar.sha256}: try again"
            )
        fetched.replace(folder / jar.file_name)


if __name__ == "__main__":
    try:
        if named := sys.argv[1:]:
            local_jars(*named)
        else:
            session_jars(*SERVICES, PAIMON)
    except BenchError as error:
        sys.exit(f"error: {error}")
