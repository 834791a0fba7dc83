"""What makes trouble for one world: kills, locks, a bad store, damage, and upkeep in the midst of it all."""

import signal
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeAlias

import planner
from puffin_index import TableIndex
from puffin_index.index_table.stored_files import list_stored_files, reachable_files
from puffin_index.index_table.table import read_entries
from tests.soak.locks import NOT_HAD, Lock
from tests.soak.proxy import FaultyProxy, Mode
from tests.soak.report import State
from tests.soak.started import Event, Started, resident_bytes, survivors
from tests.soak.world import EMPTIED, TABLE, TROUBLE, World, ask, matching, names_now, read_plainly

_TIMEOUT = ("--commit-timeout", "2")
_LONGEST_BUILD = "120s"
"""Files of no commit that are younger may belong to a build that runs."""

_PATIENCE_SECONDS = 600.0

MODES: Mapping[str, tuple[Mode, ...]] = {"store": ("cut", "busy", "stall", "mute"), "catalog": ("cut", "stall", "mute")}
"""What a proxy may do with whose connections."""


Scene: TypeAlias = tuple[World, Lock, Mapping[str, FaultyProxy]]
"""A world, what locks its catalog, and the proxies before its servers: of `store` and `catalog`, or none."""


class Trouble:
    """Runs the processes of a world and makes trouble for them; Spark applications ask and write on demand."""

    def __init__(self, scene: Scene, state: State, random: Random, *, with_spark: bool = False) -> None:
        self.world, self._lock_catalog, self._proxies = scene
        self._state = state
        self._random = random
        self._logs = Path(self.world.folder) / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._file = Path(self.world.folder) / f"{self.world.name}.json"
        self.world.write(self._file)
        self._stop = threading.Event()
        self._steady = ("steady watch", "reader", *(("spark reader", "server reader") if with_spark else ()))
        self._is_damaged = False
        self._began = time.monotonic()
        self.samples: dict[str, list[tuple[float, int]]] = {name: [] for name in self._steady}
        self._long_lived = {name: self._start(name) for name in (*self._steady, "watch", "writer")}
        self._threads = [
            threading.Thread(target=self._repeat, args=(act, seconds), daemon=True)
            for act, seconds in (
                (self._kill_watch, 20.0),
                (self._kill_writer, 90.0),
                (self._upkeep, 6.0),
                (self._lock, 15.0),
                *((partial(self._spoil, what), 25.0) for what in self._proxies),
                (self._damage, 60.0),
                (self._look, 1.0),
                (self._sample, 5.0),
            )
        ]
        for thread in self._threads:
            thread.start()

    def _sample(self) -> None:
        """Note the memory of the service that is never killed; readers tell theirs."""
        size = resident_bytes(self._long_lived["steady watch"].process.pid)
        if size:
            self._add_sample("steady watch", size)

    def _add_sample(self, name: str, size: int) -> None:
        self.samples[name].append((time.monotonic() - self._began, size))

    def _start(self, name: str) -> Started:
        log = self._logs / f"{self.world.name}-{name.replace(' ', '-')}.log"
        seed = str(self._random.randrange(2**32))
        arguments = {
            "writer": ["-m", "tests.soak.writer", str(self._file), seed],
            "reader": ["-m", "tests.soak.readers", "plain", str(self._file), seed],
            "spark reader": ["-m", "tests.soak.readers", "spark", str(self._file), seed],
            "server reader": ["-m", "tests.soak.readers", "server", str(self._file), seed],
        }.get(name)
        watch = ("build", "--engine", "local", "--workers", "1", "--watch", "--interval", "1", "--json")
        return Started(arguments or self._command(*watch, *_TIMEOUT), log, partial(self._note, name))

    def _command(self, command: str, *options: str) -> list[str]:
        properties = [f"--catalog-property={key}={value}" for key, value in self.world.properties.items()]
        return ["-m", "puffin_index", command, f"lake.{TABLE}", *options, *properties]

    def _note(self, process: str, event: Event) -> None:
        name = str(event.get("event", "build"))
        if name == "memory":
            self._add_sample(process, int(str(event["resident_bytes"])))
            return
        self._state.count(self.world.name, name)
        if name == "wrong":
            self._state.fail(f"{self.world.name}: wrong answer: {event['what']}")
        for count in ("files", "segments", "dropped"):
            number = event.get(count)
            if isinstance(number, int) and number:
                self._state.count(self.world.name, f"{name}: {count}", number)

    def _repeat(self, act: Callable[[], None], seconds: float) -> None:
        while not self._stop.wait(self._random.expovariate(1 / seconds)):
            act()

    def _look(self) -> None:
        """Start again what has ended by itself, which it must not."""
        for name in self._steady:
            ended = self._long_lived[name]
            if not ended.is_running:
                self._check_end_of(name, ended, ended.wait(1))
                self._long_lived[name] = self._start(name)

    def _kill_watch(self) -> None:
        watch = self._long_lived["watch"]
        if self._random.random() < 0.2:
            self._check_end_of("watch", watch, watch.end(signal.SIGTERM), told=True)
            self._state.count(self.world.name, "watch stopped")
        else:
            watch.end(signal.SIGKILL)
            self._state.count(self.world.name, "watch killed")
        self._long_lived["watch"] = self._start("watch")
        self._check_survivors(watch)

    def _check_end_of(self, name: str, ended: Started, code: int, *, told: bool = False) -> None:
        """Note the end of a long-lived process as a failure, unless it was told to end and did so rightly.

        A catalog or store that does not answer at the start ends the service with 1, as documented; and while Python
        starts, nobody takes signals.
        """
        if name.endswith("watch") and code in (1, -signal.SIGTERM) and "watch started" not in ended.said:
            self._state.count(self.world.name, f"{name} ended at its start")
        elif not told or code != 0:
            self._state.fail(f"{self.world.name}: {name} ended with {code}: {ended.said[-3000:]}")

    def _kill_writer(self) -> None:
        self._long_lived["writer"].end(signal.SIGKILL)
        self._state.count(self.world.name, "writer killed")
        self._long_lived["writer"] = self._start("writer")

    def _check_survivors(self, ended: Started) -> None:
        for command in survivors(ended.mark).values():
            self._state.fail(f"{self.world.name}: a process outlived the one that started it: {command[:300]}")

    def _upkeep(self) -> None:
        """Run a command; kill it in a third of the cases."""
        name, *options = self._random.choice(
            (
                ("compact",),
                ("compact", "--target-size", "40KiB"),
                ("expire", "--older-than", _LONGEST_BUILD),
                ("verify", "--sample", "5"),
                ("status",),
                ("build", "--engine", "local", *_TIMEOUT),
                ("add", "--bloom", "k"),
                ("remove", "--bloom", "k"),
            )
        )
        kill_after = self._random.uniform(0.2, 4.0) if self._random.random() < 0.33 else 0.0
        self._run(name, *options, kill_after=kill_after)

    def _run(self, name: str, *options: str, kill_after: float = 0.0) -> int:
        log = self._logs / f"{self.world.name}-{name}.log"
        started = Started(self._command(name, *options, "--json"), log, lambda _: None)
        if kill_after and not self._stop.wait(kill_after) and started.is_running:
            code = started.end(signal.SIGKILL)
            self._state.count(self.world.name, f"{name} killed")
            self._check_survivors(started)
            return code
        code = started.wait(_PATIENCE_SECONDS)
        self._state.count(self.world.name, f"{name} {'done' if code == 0 else 'refused'}")
        if code not in (0, 1, 2):
            self._state.fail(f"{self.world.name}: {name} ended with {code}: {started.said[-3000:]}")
        return code

    def _lock(self) -> None:
        seconds = self._random.choice((0.3, 2.0, 6.0, 14.0))
        try:
            with self._lock_catalog(self._random.random() < 0.5):
                self._state.count(self.world.name, "catalog locked")
                self._stop.wait(seconds)
        except NOT_HAD:
            self._state.count(self.world.name, "lock not had")

    def _spoil(self, what: str) -> None:
        mode = self._random.choice(MODES[what])
        self._proxies[what].set_mode(mode)
        self._state.count(self.world.name, f"{what}: {mode}")
        self._stop.wait(self._random.choice((0.2, 1.0, 4.0, 12.0)))
        self._proxies[what].set_mode("pass")

    def _damage(self) -> None:
        """Flip a bit in a segment on the disk; a while later, `verify --repair` must mend it."""
        if "store" in self._proxies:
            return
        try:
            catalog = self.world.open()
            index = TableIndex.open(catalog, TABLE)
            segments = sorted(set(read_entries(index.index_table)["segment"].to_pylist()))
            catalog.close()
        except TROUBLE:
            return
        if not segments:
            return
        path = Path(self._random.choice(segments).removeprefix("file://"))
        try:
            with path.open("r+b") as file:
                size = path.stat().st_size
                place = self._random.randrange(size)
                file.seek(place)
                old = file.read(1)[0]
                file.seek(place)
                file.write(bytes([old ^ 1 << self._random.randrange(8)]))
        except FileNotFoundError:
            return
        self._is_damaged = True
        self._state.count(self.world.name, "segment damaged")
        self._stop.wait(self._random.uniform(2, 20))
        self._run("verify", "--all", "--repair")

    def kill(self) -> None:
        self.stop()
        for started in self._long_lived.values():
            if started.is_running:
                started.process.kill()

    def stop(self) -> None:
        self._stop.set()

    def finish(self) -> None:
        """Let everything finish, and look for what is left behind."""
        self.stop()
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)
        for proxy in self._proxies.values():
            proxy.set_mode("pass")
        for name, started in self._long_lived.items():
            if name.endswith("watch"):
                self._check_end_of(name, started, started.end(signal.SIGTERM), told=True)
            else:
                started.end(signal.SIGKILL)
            self._check_survivors(started)
        for name, samples in self.samples.items():
            if samples:
                self._state.judge_memory(f"{self.world.name}, {name}", samples)
        self._check_end()
        self._check_logs()

    def _check_end(self) -> None:
        """Check that everything is indexed, right and tidy."""

        def must(name: str, *options: str) -> None:
            if self._run(name, *options) != 0:
                self._state.fail(f"{self.world.name}: at the end, {name} {' '.join(options)} failed")

        if self._is_damaged:
            must("verify", "--all", "--repair")
        must("build", "--engine", "local")
        must("verify", "--all")
        must("expire", "--older-than", "0s")
        catalog = self.world.open()
        index = TableIndex.open(catalog, TABLE)
        # Segments go one expiration after the record that keeps them.
        index.expire(timedelta(0))
        status = index.status()
        if status.indexed_data_files != status.data_files:
            self._state.fail(f"{self.world.name}: {status.indexed_data_files} of {status.data_files} files are indexed")
        table = index.index_table
        listed = {file.location for file in list_stored_files(table.io, table.location())}
        needed = reachable_files(table) | set(read_entries(table)["segment"].to_pylist())
        self._state.count(self.world.name, "files of the index at the end", len(listed))
        for stray in sorted(listed - needed):
            self._state.fail(f"{self.world.name}: a file is left over: {stray}")
        for lost in sorted(needed - listed):
            self._state.fail(f"{self.world.name}: a file is lost: {lost}")
        self._compare(index)
        catalog.close()

    def _compare(self, index: TableIndex) -> None:
        data, names = read_plainly(index.data_table, None), names_now(index.data_table.schema())
        for _ in range(40):
            where = ask(self._random, names, 50_000)
            found, wanted = planner.count(index, where).rows, len(matching(where, data))
            if found != wanted:
                self._state.fail(f"{self.world.name}: at the end, {found} rows and not {wanted}: {where}")

    def _check_logs(self) -> None:
        for path in sorted(self._logs.glob(f"{self.world.name}-*.log")):
            text = path.read_text(encoding="utf-8", errors="replace")
            lines = text.splitlines()
            self._state.count(self.world.name, "log lines", len(lines))
            for what in ("Traceback (most recent call last)", "[SQL:"):
                if what in text:
                    place = next(number for number, line in enumerate(lines) if what in line)
                    self._state.fail(f"{path.name}, line {place + 1}: {' | '.join(lines[place : place + 3])[:300]}")
            # Each command of a few seconds is a process of its own; these ones live on.
            if path.stem.endswith(("steady-watch", "reader")):
                for some in text.split(EMPTIED):
                    self._check_segments_told(path.name, some.splitlines())

    def _check_segments_told(self, log: str, lines: list[str]) -> None:
        about_segments = [line for line in lines if "WARNING planner." in line or "segment not rewritten" in line]
        told = [line.partition("_segments/")[2][:39] for line in about_segments]
        about = [one for one in told if one.endswith(".puffin")]
        for segment in sorted({one for one in about if about.count(one) > 1}):
            self._state.fail(f"{log}: {about.count(segment)} lines about the damaged segment {segment}")
