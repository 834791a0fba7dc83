"""The command `build`, once or as a service; it stands here because the planner's grammar reads `--where`."""

import signal
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import Literal

import click
from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn

from planner.condition.iceberg_filters import file_filter
from planner.condition.sql.parser import read_where
from puffin_index.commands.logs import log_as_a_service
from puffin_index.commands.main import NamedTable, progress_line, spark_session, table_command
from puffin_index.index_table.commit import LOCK_SECONDS, while_locked
from puffin_index.index_table.status import BuildScope
from puffin_index.jobs.build_job import BuildProgress
from puffin_index.table_index import TableIndex
from puffin_index.watch import Watch


@click.command("build")
@table_command
@click.option("--engine", type=click.Choice(["spark", "local"]), default="spark")
@click.option("--workers", type=click.IntRange(min=1), help="Processes of the local engine.  [default: cores]")
@click.option("--watch", is_flag=True, help="Follow the table: index what each new snapshot brings, until stopped.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    help="Seconds between two looks at the table.",
)
@click.option("--upkeep/--no-upkeep", default=True, help="While watching, compact and expire too.")
@click.option("--where", metavar="TEXT", help="Index only data files that can have such rows, by partition and bounds.")
@click.option("--max-files", type=click.IntRange(min=1), help="Index at most this many data files.")
@click.option("--ref", help="Index this branch or tag.")
@click.option("--snapshot-id", type=int, help="Index this snapshot.")
@click.option(
    "--commit-timeout",
    type=click.FloatRange(min=0),
    default=LOCK_SECONDS,
    help="Seconds to wait for a catalog that others have locked.",
)
def build_command(
    table: NamedTable,
    engine: Literal["spark", "local"],
    workers: int | None,
    watch: bool,
    interval: float,
    upkeep: bool,
    where: str | None,
    max_files: int | None,
    ref: str | None,
    snapshot_id: int | None,
    commit_timeout: float,
) -> None:
    """Index the data files of TABLE that have no index yet.

    A table that has no index, but properties such as file-index.bitmap.columns, gets one.
    """
    if snapshot_id is not None and (ref is not None or watch):
        raise click.UsageError("--snapshot-id goes with neither --ref nor --watch")
    catalog, name = while_locked(table.open_catalog, commit_timeout)
    index = while_locked(lambda: TableIndex.open_or_define(catalog, name), commit_timeout)
    schema = index.data_table.schema()
    row_filter = None if where is None else file_filter(read_where(where, schema), schema)
    scope = BuildScope(snapshot_id, ref, row_filter, max_files)
    spark = spark_session("build") if engine == "spark" else None
    if not watch:
        with progress_line(BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn()) as update:

            def listen(now: BuildProgress) -> None:
                update(total=now.bytes_total, completed=now.bytes_done, description=f"indexing {now}")

            report = index.build(spark, listen, workers=workers, scope=scope, commit_timeout_seconds=commit_timeout)
        table.show(report)
        return
    follower = Watch(
        lambda: TableIndex.open_or_define(catalog, name),
        lambda opened, scope: opened.build_async(
            spark,
            workers=workers,
            scope=scope,
            beside_queries=False,
            refresh=False,
            commit_timeout_seconds=commit_timeout,
        ),
        interval,
        scope=scope,
        on_report=table.show,
        upkeep=upkeep,
    )
    _follow(follower)


def _follow(follower: Watch) -> None:
    signals: SimpleQueue[int] = SimpleQueue()

    def stop(number: int, _: FrameType | None) -> None:
        # A second signal ends the process at once.
        signal.signal(number, signal.SIG_DFL)
        # This may run in the midst of anything that the main thread does, so it must not wait for what that holds.
        signals.put(number)

    def stop_when_told() -> None:
        signals.get()
        follower.stop()

    log_as_a_service()
    Thread(target=stop_when_told, name="puffin-index-stop", daemon=True).start()
    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        follower.run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
