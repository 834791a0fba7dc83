"""Compiled classes of the hook, kept for later applications of the same user: Janino takes a second and more for them.

Classes are compiled against one build of Spark and of Iceberg, so each pair has a file of its own.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from puffin_index.storage.caches import user_folder

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView

_log = logging.getLogger(__name__)

_EPOCH = (1980, 1, 1, 0, 0, 0)


def place_of(jvm: JVMView, sources: Iterable[str]) -> Path | None:
    """Return where the classes of some sources are kept for the Spark and Iceberg of a JVM; None if nowhere.

    The folder is `puffin-index` in `$XDG_CACHE_HOME`, by default `~/.cache`. Only its owner may write there, because
    the driver executes what it finds.
    """
    from py4j.protocol import Py4JError

    spark = getattr(jvm.org.apache.spark, "package$")
    try:
        builds = [
            getattr(spark, "MODULE$").SPARK_VERSION(),
            getattr(spark, "MODULE$").SPARK_REVISION(),
            jvm.org.apache.iceberg.IcebergBuild.fullVersion(),
            jvm.java.lang.System.getProperty("java.specification.version"),
        ]
        folder = user_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (Py4JError, TypeError, OSError, RuntimeError) as error:
        _log.debug("compiled classes are not kept: %s", error)
        return None
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        _log.debug("compiled classes are not kept: others may write to %s", folder)
        return None
    key = hashlib.sha256("\0".join([*map(str, builds), *sources]).encode()).hexdigest()
    return folder / f"hook-{key[:32]}.jar"


def keep(place: Path, classes: Mapping[str, bytes]) -> None:
    """Keep classes by name. A reader of the place finds all of them or no file."""
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(dir=place.parent, suffix=".tmp", delete=False) as file:
            temporary = file.name
            with zipfile.ZipFile(file, "w") as jar:
                for name, content in sorted(classes.items()):
                    jar.writestr(zipfile.ZipInfo(f"{name.replace('.', '/')}.class", _EPOCH), content)
        os.replace(temporary, place)
    except OSError as error:
        _log.debug("compiled classes are not kept: %s", error)
        with suppress(OSError):
            os.unlink(temporary)
