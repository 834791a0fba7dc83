"""A TCP proxy before a store or a database: lets connections through, cuts them, answers 503, or holds bytes back."""

import asyncio
import threading
from collections import Counter
from contextlib import suppress
from typing import Literal

Mode = Literal["pass", "cut", "busy", "stall", "mute"]
"""`mute` lets requests through and cuts the connection in place of the answer."""

_CHUNK_BYTES = 1 << 16
_BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class FaultyProxy:
    """Stands before a port, on a free one, in a thread of its own, and counts what connections each mode has met."""

    def __init__(self, target: int) -> None:
        self.mode: Mode = "pass"
        self.spoilt: Counter[str] = Counter()
        self.port = 0
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="faulty-proxy", daemon=True)
        self._thread.start()
        self._ready.wait()

    def set_mode(self, mode: Mode) -> None:
        """Change the mode; open connections are cut at once where that is the mode."""
        self.mode = mode
        if mode == "cut":
            asyncio.run_coroutine_threadsafe(self._cut_all(), self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        # Both ends of a connection see the end of the other one; transports close themselves a turn of the loop later.
        self._loop.run_until_complete(asyncio.sleep(0.05))
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _cut_all(self) -> None:
        for writer in list(self._writers):
            self.spoilt["cut"] += 1
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode == "cut":
            self.spoilt["cut"] += 1
            writer.transport.abort()
            return
        if self.mode == "busy":
            self.spoilt["busy"] += 1
            with suppress(OSError):
                await reader.read(_CHUNK_BYTES)
                writer.write(_BUSY)
                await writer.drain()
            writer.close()
            return
        self._writers.add(writer)
        try:
            with suppress(OSError):
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
                try:
                    await asyncio.gather(self._pump(reader, up_writer), self._pump(up_reader, writer, is_answer=True))
                finally:
                    up_writer.close()
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_answer: bool = False) -> None:
        with suppress(OSError):
            while data := await source.read(_CHUNK_BYTES):
                if is_answer and self.mode == "mute":
                    self.spoilt["mute"] += 1
                    sink.transport.abort()
                    return
                if self.mode == "stall":
                    self.spoilt["stall"] += 1
                while self.mode == "stall":
                    await asyncio.sleep(0.1)
                sink.write(data)
                await sink.drain()
        with suppress(OSError, RuntimeError):
            sink.close()
