"""Java archives by coordinates and SHA-256 (`jars.txt`): fetched once, one process at a time, before Spark starts.

`python -m ssb_bench.spark_runs.jars [PATTERN …]` fetches some, or what the tests need with the installed Spark.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pyspark
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from puffin_index.storage.caches import user_folder
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
_CLONE: Final = Path(__file__).parents[2]
_TIMEOUT_SECONDS: Final = 900
# Only a module file can tell Ivy of a classifier.
_MODULE: Final = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="puffin-index" module="jars"/>
  <dependencies>
    <dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" transitive="false">
      <artifact name="{jar.artifact}" type="jar"{classifier}/>
    </dependency>
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True)
class Jar:
    """A Java archive of a Maven repository; `sha256` is in hexadecimal digits."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """The words by which Maven's users name the archive."""
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))

    @property
    def file_name(self) -> str:
        """The name that Maven's repositories give to the file."""
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"


def jars_named(pattern: str) -> list[Jar]:
    """Look archives up in `jars.txt`, by a pattern of the shell; raise BenchError if there is none."""
    jars = []
    for line in _LOCKED.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            coordinate, sha256 = line.split()
            group, artifact, version, classifier = (*coordinate.split(":"), "")[:4]
            if fnmatchcase(artifact, pattern):
                jars.append(Jar(group, artifact, version, classifier, sha256))
    if not jars:
        raise BenchError(f"{_LOCKED.name} has no archive {pattern}")
    return jars


def iceberg_runtime() -> Jar:
    """Give Iceberg's newest runtime for the Spark that is installed; raise BenchError if there is none."""
    scala = "2.12" if SPARK_RELEASE == "3.5" else "2.13"
    return jars_named(f"iceberg-spark-runtime-{SPARK_RELEASE}_{scala}")[0]


def jars_folder() -> Path:
    """Return the folder of fetched archives: `.jars` of a clone, otherwise one in the user's cache."""
    return _CLONE / ".jars" if (_CLONE / "pyproject.toml").exists() else user_folder() / "jars"


def local_jars(*patterns: str) -> list[Path]:
    """Give the files of archives, by patterns, in the given order; those that are missing are fetched.

    Only one process fetches at a time, and an archive appears in the folder once it is whole and its checksum is right.
    Archives that an interrupted call has fetched are there for the next call.

    Raises:
        BenchError: If one cannot be fetched, or is not the one that `jars.txt` names.
    """
    jars, folder = [jar for pattern in patterns for jar in jars_named(pattern)], jars_folder()
    paths = [folder / jar.file_name for jar in jars]
    if not all(path.exists() for path in paths):
        with _locked(folder):
            for jar, path in zip(jars, paths, strict=True):
                if not path.exists():
                    _fetch(jar, folder)
    return paths


def session_jars(*artifacts: str) -> list[Path]:
    """Give the files of what each session needs, and of other archives, as `local_jars` does."""
    return local_jars(iceberg_runtime().artifact, _SQLITE_DRIVER, *artifacts)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process fetches into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@retry(
    retry=retry_if_exception_type(BenchError), stop=stop_after_attempt(3), wait=wait_exponential(max=2), reraise=True
)
def _fetch(jar: Jar, folder: Path) -> None:
    """Bring an archive into a folder, once it is whole and checked; only the process with the lock may call this."""
    print(f"fetching {jar.file_name}", file=sys.stderr)  # noqa: T201
    temporary = folder / "fetching"
    shutil.rmtree(temporary, ignore_errors=True)  # a process was killed
    temporary.mkdir()
    try:
        fetched = _download(jar, temporary)
        with fetched.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != jar.sha256:
            raise BenchError(
                f"{jar.file_name} has the SHA-256 {digest}, and {_LOCKED.name} says {jar.sha256}: try again"
            )
        fetched.replace(folder / jar.file_name)
    finally:
        shutil.rmtree(temporary)


def _download(jar: Jar, folder: Path) -> Path:
    """Fetch an archive by the Ivy that PySpark brings; a file that `IVY_SETTINGS` names tells Ivy of mirrors."""
    home, settings = os.environ.get("JAVA_HOME"), os.environ.get("IVY_SETTINGS")
    (folder / "ivy.xml").write_text(
        _MODULE.format(jar=jar, classifier=f' m:classifier="{jar.classifier}"' if jar.classifier else ""),
        encoding="utf-8",
    )
    command = [f"{home}/bin/java" if home else "java", "-cp", f"{SPARK_JARS}/*", "org.apache.ivy.Main", "-warn"]
    command += ["-settings", settings] if settings else []
    command += ["-cache", f"{folder}/cache", "-ivy", f"{folder}/ivy.xml", "-retrieve", f"{folder}/[artifact].[ext]"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
        said = done.stdout + done.stderr
    except (OSError, subprocess.SubprocessError) as error:
        said = f"{error}"
    fetched = folder / f"{jar.artifact}.jar"
    if not fetched.exists():
        raise BenchError(
            f"{jar.file_name} ({jar.coordinate}) cannot be fetched: try again, or put the file into {folder.parent}. "
            f"Ivy says: {' '.join(word for word in said.split() if word.strip(':'))[-500:]}"
        )
    return fetched


if __name__ == "__main__":
    try:
        if named := sys.argv[1:]:
            local_jars(*named)
        else:
            session_jars(*SERVICES, PAIMON)
    except BenchError as error:
        sys.exit(f"error: {error}")
