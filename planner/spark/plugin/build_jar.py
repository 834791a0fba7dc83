"""The plugin's jar, compiled by javac against Spark's own jars; the build of the wheel runs this file by itself.

One jar serves all releases of Spark: its classes use only what the releases have in common.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).parent
JAR = _HERE / "puffin-index-spark.jar"
_OLDEST_JAVA = 17
_EPOCH = (1980, 1, 1, 0, 0, 0)
_DIGEST = "META-INF/sources"


class JarError(Exception):
    """Say in a sentence why there is no jar."""


def built_jar() -> Path:
    """Return the jar, which is compiled if it is missing or of other sources; raise JarError if that fails."""
    sources = sorted(_HERE.glob("*.java"))
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()
    if not _is_of(digest):
        with tempfile.TemporaryDirectory() as folder:
            _compile(sources, Path(folder))
            _write(Path(folder), digest)
    return JAR


def _is_of(digest: str) -> bool:
    if not zipfile.is_zipfile(JAR):
        return False
    with zipfile.ZipFile(JAR) as jar:
        return jar.read(_DIGEST).decode() == digest


def _compile(sources: list[Path], folder: Path) -> None:
    home = os.environ.get("JAVA_HOME")
    javac = shutil.which("javac", path=f"{home}/bin" if home else None)
    if javac is None:
        where = f" in {home}/bin, which is a runtime" if home else ""
        raise JarError(f"the plugin for Spark is not compiled: there is no javac{where}; install a JDK 17 or newer")
    options = ["--release", str(_OLDEST_JAVA), "-proc:none", "-d", str(folder), "-cp", f"{_spark_jars()}/*"]
    done = subprocess.run([javac, *options, *map(str, sources)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise JarError(f"the plugin for Spark does not compile: {done.stderr}")


def _spark_jars() -> Path:
    home, spec = os.environ.get("SPARK_HOME"), find_spec("pyspark")
    if home:
        return Path(home) / "jars"
    if spec is None or spec.origin is None:
        raise JarError("the plugin for Spark is not compiled: there is no Spark; install pyspark or set SPARK_HOME")
    return Path(spec.origin).parent / "jars"


def _write(folder: Path, digest: str) -> None:
    try:
        with tempfile.NamedTemporaryFile(dir=_HERE, suffix=".tmp", delete=False) as file:
            with zipfile.ZipFile(file, "w") as jar:
                jar.writestr(zipfile.ZipInfo(_DIGEST, _EPOCH), digest)
                for path in sorted(folder.rglob("*.class")):
                    entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _EPOCH)
                    jar.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
            # Servers of other users read it as well.
            os.chmod(file.name, 0o644)
            os.replace(file.name, JAR)
    except OSError as error:
        raise JarError(f"the plugin for Spark cannot be written: {error}") from error


if __name__ == "__main__":
    try:
        built_jar()
    except JarError as error:
        sys.exit(str(error))
