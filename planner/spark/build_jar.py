"""The hook's jar: the Java of `java/`, compiled by javac once for each release of Spark.

The wheel brings the jars of all releases. Whoever builds one runs this file by itself, without what the package needs:
`python planner/spark/build_jar.py [RELEASE | all]`, by default for the Spark that is installed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

RELEASES = ("4.1_2.13", "4.0_2.13", "3.5_2.13", "3.5_2.12")
"""Each release of Spark with its release of Scala, as Iceberg names them."""

SOURCES_DIGEST = "META-INF/puffin-index"
"""What a jar says of its sources and its release."""

_HERE = Path(__file__).parent
_FETCHED = _HERE.parents[1] / ".jars"
OLDEST_JAVA = 17
_EPOCH = (1980, 1, 1, 0, 0, 0)


class JarError(Exception):
    """Say in a sentence why there is no jar."""


def sources_of(release: str) -> list[Path]:
    """The Java files of a release: only Spark 4 has procedures."""
    folders = ["java"] if release.startswith("3.") else ["java", "java_spark4"]
    return sorted(path for folder in folders for path in (_HERE / folder).rglob("*.java"))


def digest_of(release: str) -> str:
    """What the jar of a release has to say of its sources."""
    digest = hashlib.sha256()
    for source in sources_of(release):
        digest.update(f"{source.relative_to(_HERE)}\0".encode() + source.read_bytes() + b"\0")
    return f"{release} {digest.hexdigest()}"


def _jar(release: str) -> Path:
    return _HERE / "jars" / f"puffin-index-spark-{release}.jar"


def ready_jar(release: str) -> Path | None:
    """Return the jar of a release; None if it is missing or of other sources."""
    jar = _jar(release)
    return jar if digest_in(jar) == digest_of(release) else None


def digest_in(jar: Path) -> str | None:
    """Return what a jar says of its sources; None if it is missing or no jar of the hook."""
    try:
        with zipfile.ZipFile(jar) as content:
            return content.read(SOURCES_DIGEST).decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None


def built_jar(release: str, class_path: Callable[[str], Iterable[str | Path]] | None = None) -> Path:
    """Return the jar of a release, which is compiled if there is none of the present sources.

    Args:
        release: One of `RELEASES`.
        class_path: Gives the jars of Spark and Iceberg; by default those of the installed Spark and of the clone.

    Raises:
        JarError: If there is no such release, no javac, or no jar to compile with.
    """
    ready = ready_jar(release)
    if ready is not None:
        return ready
    if release not in RELEASES:
        raise JarError(f"there is no jar of the hook for Spark {release}, only for {', '.join(RELEASES)}")
    compile_jar(sources_of(release), (class_path or clone_class_path)(release), _jar(release), digest_of(release))
    return _jar(release)


def compile_jar(sources: Iterable[Path], class_path: Iterable[str | Path], jar: Path, digest: str = "") -> None:
    """Compile Java into a jar, which other processes may do at the same time; raise JarError if that fails."""
    with tempfile.TemporaryDirectory() as folder:
        run_javac(["-proc:none", "-nowarn", "-d", folder, *map(str, sources)], class_path)
        try:
            jar.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=jar.parent, suffix=".tmp", delete=False) as file:
                with zipfile.ZipFile(file, "w") as content:
                    content.writestr(zipfile.ZipInfo(SOURCES_DIGEST, _EPOCH), digest)
                    for path in sorted(Path(folder).rglob("*.class")):
                        entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _EPOCH)
                        content.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
                # Servers of other users read it as well.
                os.chmod(file.name, 0o644)
                os.replace(file.name, jar)
        except OSError as error:
            raise JarError(f"the hook's jar cannot be written: {error}") from error


def run_javac(options: Iterable[str], class_path: Iterable[str | Path]) -> None:
    """Run javac for the oldest Java; raise JarError with what it says if it fails."""
    javac = find_java("javac")
    if javac is None:
        home = os.environ.get("JAVA_HOME")
        where = f" in {home}/bin, which is a runtime," if home else ""
        raise JarError(
            f"there is no jar of the hook, and no javac{where} to compile it: install a JDK {OLDEST_JAVA} or newer, "
            f"or a wheel of puffin-index, which has the jars for Spark {', '.join(RELEASES)}"
        )
    # It runs too briefly for the optimizing compiler.
    command = [javac, "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "--release", str(OLDEST_JAVA)]
    command += ["-cp", os.pathsep.join(map(str, class_path)), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise JarError(f"the hook does not compile: {done.stderr}")


def find_java(program: str = "java") -> str | None:
    """Return the path of a program of Java: that of JAVA_HOME, or without JAVA_HOME that of the path, as Spark does."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(program, path=f"{home}/bin" if home else None)


def installed_release() -> str:
    """The release of the Spark that is installed; raise JarError if there is none."""
    jars = spark_home() / "jars"
    for jar in jars.glob("spark-core_*.jar"):
        scala, spark = jar.stem.removeprefix("spark-core_").split("-")[:2]
        return f"{'.'.join(spark.split('.')[:2])}_{scala}"
    raise JarError(f"there is no Spark in {jars}: install pyspark or set SPARK_HOME")


def clone_class_path(release: str) -> list[str | Path]:
    """The jars of a release: of the installed Spark, and of the clone's folder of fetched archives."""
    folder = spark_home() / "jars"
    spark, scala = release.split("_")
    if release == installed_release():
        return [*_fetched(f"iceberg-spark-runtime-{release}-*.jar"), folder / "*"]
    others = (jar for jar in folder.glob("*.jar") if not jar.name.startswith(("spark-", "scala-")))
    patterns = [
        f"iceberg-spark-runtime-{release}-*.jar",
        f"spark-*_{scala}-{spark}.*.jar",
        f"scala-library-{scala}.*.jar",
    ]
    return [*(jar for pattern in patterns for jar in _fetched(pattern)), *others]


def _fetched(pattern: str) -> list[Path]:
    found = sorted(_FETCHED.glob(pattern))
    if not found:
        raise JarError(
            f"there is no jar of the hook for this Spark yet: {_FETCHED} has no {pattern} to compile it with"
        )
    return found


def spark_home() -> Path:
    """The folder of the Spark that is installed, or raise JarError if there is none."""
    home, spec = os.environ.get("SPARK_HOME"), find_spec("pyspark")
    if home:
        return Path(home)
    if spec is None or spec.origin is None:
        raise JarError("there is no Spark: install pyspark or set SPARK_HOME")
    return Path(spec.origin).parent


if __name__ == "__main__":
    try:
        asked = sys.argv[1] if sys.argv[1:] else installed_release()
        for name in RELEASES if asked == "all" else [asked]:
            built_jar(name)
    except JarError as error:
        sys.exit(str(error))
