"""Java archives from Maven Central, fetched by the Ivy that PySpark bundles, so that nothing but a Java is needed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyspark

from puffin_index.storage.caches import user_folder

PAIMON: Final = ("org.apache.paimon", "paimon-bundle", "1.4.2")
_TIMEOUT_SECONDS: Final = 500


def paimon_classpath() -> list[str]:
    """Give Paimon's bundle, and the archives of PySpark that the bundle needs.

    Raises:
        subprocess.SubprocessError: If it cannot be fetched.
        OSError: If there is no Java, or no room.
    """
    parts = [path for name in ("slf4j-api-*.jar", "hadoop-client-*.jar") for path in spark_jars().glob(name)]
    return [str(fetch_jar(*PAIMON)), *map(str, sorted(parts))]


def fetch_jar(group: str, artifact: str, version: str) -> Path:
    """Give an archive from the user's cache directory; the first use fetches the archive.

    Raises:
        subprocess.SubprocessError: If it cannot be fetched.
        OSError: If there is no Java, or no room.
    """
    cache = user_folder()
    jar = cache / f"{artifact}-{version}.jar"
    if not jar.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # The archive is fetched into another directory, so that other processes see it only when it is whole.
        with TemporaryDirectory(dir=cache) as fetched:
            ivy = ["java", "-cp", str(spark_jars() / "*"), "org.apache.ivy.Main", "-cache", f"{fetched}/ivy"]
            module = ["-dependency", group, artifact, version, "-confs", "default", "-notransitive"]
            retrieve = ["-retrieve", f"{fetched}/[artifact]-[revision].[ext]"]
            subprocess.run([*ivy, *module, *retrieve], check=True, timeout=_TIMEOUT_SECONDS)
            (Path(fetched) / jar.name).replace(jar)
    return jar


def spark_jars() -> Path:
    """Give the directory of the archives that PySpark brings."""
    return Path(next(iter(pyspark.__path__))) / "jars"
