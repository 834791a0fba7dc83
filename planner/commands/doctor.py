"""The command `doctor`: what a bug report has to say of an installation, its catalogs and a table."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import distributions, requires, version
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeAlias

import click
from packaging.requirements import Requirement

from planner.spark import build_jar
from planner.spark.build_jar import OLDEST_JAVA, RELEASES, find_java
from puffin_index.commands.main import NamedTable, table_command
from puffin_index.errors import CatalogError, NotFoundError

Findings: TypeAlias = Iterator[tuple[str, str]]
"""A state, which is "ok", "warning" or "problem", and what is so."""

_NAME: Final = "puffin-index"
_PYTHON_SAYS: Final = (
    "import planner.spark.sidecar, platform; from importlib.metadata import version; "
    f"print('{_NAME}', version('{_NAME}'), 'with Python', platform.python_version())"
)
_SECRET_NAME: Final = re.compile("auth|connection.string|credential|key|password|secret|signature|token", re.IGNORECASE)
_SHORTEST_SECRET: Final = 4
_SECRET_IN_URI: Final = re.compile(r"(//)\S*(?=@)|([?&][^\s=&]*=)[^\s&'\")]+")
"""The user with the password, and each value behind the question mark."""


@click.command("doctor")
@partial(table_command, required=False)
@click.option("--write", is_flag=True, help="Write a small file beside the segments of TABLE, and delete it.")
@click.option("--seconds", default=60.0, help="How long to wait for each catalog, and for TABLE.")
def doctor_command(table: NamedTable, write: bool, seconds: float) -> None:
    """Say what a bug report needs: versions, Java, the hook's jar, Pythons and catalogs; of TABLE, what can be read.

    Without TABLE, all catalogs of PyIceberg's configuration are asked. Nothing is changed, but for the file of --write,
    and no secrets are printed. Exits with 1 if there is a problem.
    """
    configured = _configured_catalogs()
    checks: dict[str, Callable[[], Findings]] = {"versions": _check_versions}
    with suppress(build_jar.JarError):
        checks["jar of the hook"] = partial(_check_jar, build_jar.installed_release())
        checks |= {"Java": _check_java, "settings of Spark": _check_settings}
    if table.name:
        checks["table"] = partial(_check_table, table, write)
    else:
        checks |= {f"catalog {name}": partial(_check_catalog, name) for name in configured}
    secrets = {secret for source in (os.environ, configured, table.properties) for secret in _secrets_of(source)}
    findings: list[dict[str, str]] = []
    for about, check in checks.items():
        for state, told in _run(check, seconds):
            finding = {"about": about, "state": state, "text": _without_secrets(told, secrets)}
            findings.append(finding)
            if not table.as_json:
                click.echo("{state:8} {about}: {text}".format(**finding))
    if table.as_json:
        click.echo(json.dumps({"findings": findings}))
    sys.exit(any(finding["state"] == "problem" for finding in findings))


def _run(check: Callable[[], Findings], seconds: float) -> Findings:
    """Yield what a check finds; that it fails, or does not end in time, is a finding as well."""
    found: list[tuple[str, str]] = []

    def collect() -> None:
        try:
            found.extend(check())
        except Exception as error:  # noqa: BLE001 - one failure must not hide what the other checks find
            found.append(("problem", f"{type(error).__name__}: {error}"))

    # A daemon: what never answers must not keep the process alive.
    thread = Thread(target=collect, daemon=True)
    thread.start()
    thread.join(seconds)
    yield from list(found)
    if thread.is_alive():
        yield "problem", f"no answer in {seconds:g} s: see whether its host and port can be reached from here"


def _without_secrets(text: str, secrets: set[str]) -> str:
    # A secret may be a part of another one.
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _SECRET_IN_URI.sub(r"\1\2***", " ".join(text.split()))


def _secrets_of(properties: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of properties whose names say that they are secret."""
    for name, value in properties.items():
        if isinstance(value, Mapping):
            yield from _secrets_of(value)
        elif _SECRET_NAME.search(name) and len(str(value)) >= _SHORTEST_SECRET:
            yield str(value)


def _check_versions() -> Findings:
    yield "ok", f"{_NAME} {version(_NAME)} in {Path(__file__).parents[2]}"
    yield "ok", f"Python {platform.python_version()}, {sys.executable}, on {platform.platform()}"
    for requirement in map(Requirement, requires(_NAME) or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": "spark"}):
            continue
        found = next((one.version for one in distributions(name=requirement.name)), None)
        # Indexes are built and asked without Spark as well.
        fits = requirement.specifier.contains(found, prereleases=True) if found else requirement.name == "pyspark"
        text = f"{requirement.name} {found or 'is missing'}, needed is {requirement.specifier}"
        yield "ok" if fits else "problem", text


def _check_java() -> Findings:
    java, said = find_java(), "has no java"
    if java:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "((\d+)[^"]*)"', said)
    if found and int(found[2]) >= OLDEST_JAVA:
        yield "ok", f"{java} is {found[1]}, {'a JDK' if find_java('javac') else 'a runtime without javac'}"
    else:
        where = java or os.environ.get("JAVA_HOME", "the path")
        yield "problem", f"{where}: {said}: for Spark, install Java {OLDEST_JAVA} or set JAVA_HOME to it"


def _check_jar(release: str) -> Findings:
    ready = [one for one in RELEASES if build_jar.ready_jar(one)]
    text = f"Spark here is {release}, in {build_jar.spark_home()}; jars: {', '.join(ready) or 'none'}"
    if release in ready:
        yield "ok", text
    elif release in RELEASES and find_java("javac"):
        yield "warning", f"{text}: the first session compiles its jar, in some seconds"
    else:
        yield "problem", f"{text}: install one of {', '.join(RELEASES)}, and a wheel of {_NAME}, which has its jar"


def _check_settings() -> Findings:
    file = Path(os.environ.get("SPARK_CONF_DIR") or build_jar.spark_home() / "conf") / "spark-defaults.conf"
    lines = file.read_text(encoding="utf-8") if file.exists() else ""
    settings = dict(re.findall(r"^[ \t]*([^\s#=:]+)[ \t]*[ \t=:][ \t]*(.*?)[ \t]*$", lines, re.MULTILINE))
    python = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    unset = f"on a cluster, set PYSPARK_PYTHON to a Python that has {_NAME} there; with a local master, it is this one"
    yield _check_python("executors", python) if python else ("ok", unset)
    if "PuffinIndexPlugin" not in settings.get("spark.plugins", ""):
        yield "ok", f"drivers in other languages need what `{_NAME} spark-conf` prints; {file} does not have it"
        return
    # The order is that of the plugin.
    named = settings.get("spark.puffin-index.python") or os.environ.get("PUFFIN_INDEX_PYTHON")
    yield _check_python("the plugin", named or os.environ.get("PYSPARK_PYTHON") or "python3")
    jars = (Path(jar.strip().removeprefix("file:")) for jar in settings.get("spark.jars", "").split(","))
    if build_jar.digest_of(build_jar.installed_release()) not in map(build_jar.digest_in, jars):
        yield "warning", f"spark.jars has no jar of this version on this machine: set what `{_NAME} spark-conf` prints"


def _check_python(of: str, python: str) -> tuple[str, str]:
    try:
        # As the plugin starts it.
        done = subprocess.run([python, "-P", "-c", _PYTHON_SAYS], capture_output=True, text=True, check=False)
    except OSError as error:
        # A cluster may have what this machine has not.
        return "warning", f"the Python of {of}, {python}, does not start on this machine: {error.strerror}"
    told, needed = done.stdout.strip() or done.stderr.strip().rpartition("\n")[2], f"{_NAME} {version(_NAME)}"
    state = "ok" if told.startswith(f"{needed} ") else "problem"
    return state, f"the Python of {of}, {python}, says {told}; needed is {needed}"


def _configured_catalogs() -> Mapping[str, Any]:
    """The properties of each catalog that PyIceberg has configured; raise CatalogError, which quotes none of them."""
    from pyiceberg.utils.config import Config
    from strictyaml import YAMLError

    try:
        config: Mapping[str, Any] = Config().config
    except (YAMLError, ValueError) as error:
        raise CatalogError("PyIceberg cannot read its configuration: see .pyiceberg.yaml, PYICEBERG_...") from error
    return config.get("catalog") or {}


def _check_catalog(name: str) -> Findings:
    from puffin_index.index_table.open_catalog import open_catalog

    yield "ok", f"answers, with {len(open_catalog(name, {}).list_namespaces())} namespaces"


def _check_table(table: NamedTable, write: bool) -> Findings:
    from puffin_index.data.data_table import list_data_files, open_table
    from puffin_index.index_table.entries import segment_sizes
    from puffin_index.index_table.status import read_lag
    from puffin_index.index_table.table import TableName, read_entries, segments_folder
    from puffin_index.segments.segment import new_segment_location
    from puffin_index.storage.files import FileReader, NewFile

    catalog, name = table.open_catalog()
    data_table = open_table(catalog, TableName.parse(name))
    yield "ok", f"catalog {catalog.name!r} answers, the table is in {data_table.location()}"
    files = list_data_files(data_table)
    for file in files[:1]:
        with FileReader(data_table.io, file.path, file.file_size) as reader:
            reader.read(0, 1)
    yield "ok", f"its metadata can be read, and {len(files[:1])} of {len(files)} data files"
    try:
        index = table.open_index()
    except NotFoundError as error:
        yield "warning", str(error)
        return
    yield from (("warning", warning) for warning in index.warnings)
    folder, io = segments_folder(index.index_table), index.index_table.io
    segments = [*segment_sizes(read_entries(index.index_table)).items()]
    for location, size in segments[:1]:
        with FileReader(io, location, size) as reader:
            reader.read(0, 1)
    name, read = ".".join(index.index_table.name()), f"{len(segments[:1])} of {len(segments)} segments"
    yield "ok", f"index table {name} and {read} can be read, in {folder}"
    if write:
        # `expire` deletes a file of this name, should this process end before it does.
        location = new_segment_location(folder)
        with NewFile(io, location) as new:
            new.write(_NAME.encode())
        io.delete(location)
        yield "ok", f"a file was written to {folder} and deleted"
    lag = read_lag(data_table, index.index_table, index.columns)
    without = f"{len(lag.files)} data files have no index"
    yield ("warning", f"{without}: `{_NAME} build` indexes them") if lag.files else ("ok", without)
