"""A soak: an index under load and in trouble for as long as you like, in parts that add up.

    python -m tests.soak --seconds 3600 --state data/soak

Each part ends with `verify --all` and a search for what was left behind. Exits with 1 if anything failed.
"""

import shutil
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random

import click
import pytest

from tests.soak.locks import postgres_lock, sqlite_lock
from tests.soak.proxy import FaultyProxy
from tests.soak.report import State
from tests.soak.trouble import Scene, Trouble
from tests.soak.world import World
from tests.spark.services import make_bucket, postgres, s3_server

_LOOK_SECONDS = 5.0
_KEY, _SECRET = "AKIASOAK", "soak"
_LOCK_TIMEOUT = "?options=-c%20lock_timeout%3D3000"
"""PostgreSQL waits without end otherwise, so that builds could not give up."""


def disk(folder: Path) -> Scene:
    """A table in the folder, which later parts go on with."""
    lake = folder / "disk"
    lake.mkdir(exist_ok=True)
    database = lake / "catalog.db"
    return World("disk", str(folder), f"sqlite:///{database}", lake.as_uri(), {}), sqlite_lock(database), {}


def store(folder: Path, stack: ExitStack, *, with_postgres: bool) -> Scene:
    """A table in an S3 server, which forgets everything at the end; proxies stand before them."""
    endpoint = stack.enter_context(s3_server())
    make_bucket(endpoint, "soak", _KEY, _SECRET)
    proxies = {"store": stack.enter_context(closing(FaultyProxy(int(endpoint.rpartition(":")[2]))))}
    if with_postgres:
        try:
            port = stack.enter_context(postgres(_KEY, _SECRET))
        except pytest.skip.Exception as error:
            raise click.ClickException(str(error)) from error
        proxies["catalog"] = stack.enter_context(closing(FaultyProxy(port)))
        uri = f"postgresql+psycopg2://{_KEY}:{_SECRET}@127.0.0.1:{proxies['catalog'].port}/postgres{_LOCK_TIMEOUT}"
        lock = postgres_lock(port, _KEY, _SECRET)
    else:
        lake = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True)))
        uri, lock = f"sqlite:///{lake / 'catalog.db'}", sqlite_lock(lake / "catalog.db")
    properties = {
        "s3.endpoint": f"http://127.0.0.1:{proxies['store'].port}",
        "s3.access-key-id": _KEY,
        "s3.secret-access-key": _SECRET,
        "s3.region": "us-east-1",
        "s3.connect-timeout": "3",
        "s3.request-timeout": "5",
    }
    return World("store", str(folder), uri, "s3://soak/lake", properties), lock, proxies


@click.command()
@click.option("--seconds", type=float, default=3600.0, show_default=True, help="Time under load, of this part.")
@click.option("--state", "folder", type=click.Path(path_type=Path), default=Path("data/soak"), show_default=True)
@click.option("--seed", type=int, help="What happens when; by default, the number of the part.")
@click.option("--disk/--no-disk", "with_disk", default=True, show_default=True, help="A table on the disk.")
@click.option("--store/--no-store", "with_store", default=True, show_default=True, help="A table in an S3 store.")
@click.option("--spark/--no-spark", "with_spark", help="Two Spark applications as well, on the table on the disk.")
@click.option("--postgres/--no-postgres", "with_postgres", help="A catalog in PostgreSQL for the table in the store.")
@click.option("--fresh", is_flag=True, help="Forget the earlier parts.")
def main(
    seconds: float,
    folder: Path,
    seed: int | None,
    with_disk: bool,
    with_store: bool,
    with_spark: bool,
    with_postgres: bool,
    fresh: bool,
) -> None:
    """Put an index under load and into trouble."""
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for log in (folder / "logs").glob("*.log"):
        log.unlink()
    path = folder / "state.json"
    state = State.read(path)
    state.parts += 1
    failures, before = len(state.failures), state.seconds
    random = Random(seed if seed is not None else state.parts)
    with ExitStack() as stack:
        scenes = [disk(folder)] if with_disk else []
        if with_store:
            scenes.append(store(folder, stack, with_postgres=with_postgres))
        for world, _, _ in scenes:
            world.make_table()
        troubles: list[Trouble] = []
        for scene in scenes:
            spark_here = with_spark and scene[0].name == "disk"
            trouble = Trouble(scene, state, Random(random.random()), with_spark=spark_here)
            troubles.append(trouble)
            stack.callback(trouble.kill)
        started = time.monotonic()
        try:
            while (passed := time.monotonic() - started) < seconds:
                time.sleep(min(_LOOK_SECONDS, seconds - passed))
                state.seconds = before + time.monotonic() - started
                state.write(path)
                _say(state, seconds - passed)
        except KeyboardInterrupt:
            click.echo("stopping", err=True)
        click.echo("the load is over; looking for what is left behind", err=True)
        for trouble in troubles:
            trouble.stop()
        for trouble in troubles:
            trouble.finish()
    state.write(path)
    (folder / "report.txt").write_text(state.text() + "\n", encoding="utf-8")
    click.echo(state.text())
    sys.exit(1 if len(state.failures) > failures else 0)


def _say(state: State, left: float) -> None:
    counts = {name: state.total(name) for name in ("append", "build", "query", "watch killed", "catalog locked")}
    said = ", ".join(f"{number} {name}" for name, number in counts.items())
    click.echo(f"{left:5.0f} s left: {said}, {len(state.failures)} failures", err=True)


if __name__ == "__main__":
    main()
