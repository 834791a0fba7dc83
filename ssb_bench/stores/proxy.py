"""A proxy before an S3 server: delays each answer, bounds the bytes a second, and notes each request.

Runs as a process of its own (`python -m ssb_bench.stores.proxy ORIGIN_PORT`). The first line of its output is its port.
Then each line of its input is a command, each line of its output the answer:

| command | answer |
| --- | --- |
| `{"latency": s, "bandwidth": b}`: seconds before each answer, bytes a second each way (null: no bound) | `{}` |
| `{"take": true}` | requests that ended since the last time, and connections opened |

A Python S3 server takes 5 ms of a processor for an answer. A store takes none of this machine's, so the proxy keeps
what it has fetched and answers a second GET or HEAD itself, until the key is written or deleted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, urlsplit

from ssb_bench.stores.traffic import Request, Taken

_CHUNK_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 256 * 1024
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "expect", "te", "upgrade"})
_CONDITIONS: Final = frozenset({"if-match", "if-none-match", "if-modified-since", "if-unmodified-since"})


@dataclass(frozen=True, slots=True)
class _Message:
    """A request or an answer: its first line, its headers by lower-case name, its body."""

    line: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def status(self) -> int:
        return int(self.line.split()[1])

    def head(self, **changed: str) -> bytes:
        headers = {name: text for name, text in self.headers.items() if name not in _HOP_BY_HOP} | changed
        return "\r\n".join([self.line, *(f"{name}: {text}" for name, text in headers.items()), "", ""]).encode("latin1")


@dataclass(slots=True)
class _Link:
    """One direction of the line that all connections share."""

    free_at: float = 0.0

    async def passes(self, length: int, bandwidth: float | None) -> None:
        """Wait until so many bytes are through."""
        if bandwidth is None or not length:
            return
        self.free_at = max(self.free_at, time.perf_counter()) + length / bandwidth
        await asyncio.sleep(self.free_at - time.perf_counter())


@dataclass(slots=True)
class Proxy:
    """The proxy.

    Attributes:
        origin: The port of the S3 server on this machine.
        latency: Seconds before each answer.
        bandwidth: Bytes a second each way; None for no bound.
    """

    origin: int
    latency: float = 0.0
    bandwidth: float | None = None
    _requests: list[Request] = field(default_factory=list)
    _connections: int = 0
    _down: _Link = field(default_factory=_Link)
    _up: _Link = field(default_factory=_Link)
    _kept: dict[str, asyncio.Future[_Message]] = field(default_factory=dict)

    def take(self) -> Taken:
        """Give the requests that ended since the last time, and forget them."""
        taken = Taken(self._requests, self._connections)
        self._requests, self._connections = [], 0
        return taken

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                began = time.perf_counter()
                await self._answer(head, began, reader, writer)
        writer.close()

    async def _answer(
        self, head: bytes, began: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        request = _parsed(head, b"")
        if "expect" in request.headers:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _body(request.headers, reader)
        await self._up.passes(len(body), self.bandwidth)
        request = _Message(request.line, request.headers, body)
        method, target, _ = request.line.split(" ", 2)
        answer = await self._answer_of(request, method, target)
        await asyncio.sleep(began + self.latency - time.perf_counter())
        sent = b"" if method == "HEAD" else answer.body
        length = answer.headers.get("content-length", "0") if method == "HEAD" else str(len(sent))
        writer.write(answer.head(**{"content-length": length, "connection": "keep-alive"}))
        for start in range(0, len(sent), _CHUNK_BYTES):
            chunk = sent[start : start + _CHUNK_BYTES]
            await self._down.passes(len(chunk), self.bandwidth)
            writer.write(chunk)
            await writer.drain()
        kind, key = _kind(method, target, request.headers), urlsplit(target).path.lstrip("/")
        ended = time.perf_counter()
        self._requests.append(Request(began, ended, kind, key, len(sent), len(body), answer.status))

    async def _answer_of(self, request: _Message, method: str, target: str) -> _Message:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query, keep_blank_values=True)
        is_plain = not (query.keys() - {"x-id"}) and "/" in path.strip("/") and not _CONDITIONS & request.headers.keys()
        if method not in ("GET", "HEAD"):
            answer = await self._ask(request)
            # A POST of the bucket deletes many keys; everything else changes its own key.
            forgotten = list(self._kept) if method == "POST" and "delete" in query else [path]
            for key in forgotten:
                self._kept.pop(key, None)
            return answer
        if not is_plain or (method == "HEAD" and path not in self._kept):
            return await self._ask(request)
        whole = await self._whole(path, request)
        if whole.status != HTTPStatus.OK:
            return whole
        return _part(whole, request.headers.get("range")) if method == "GET" else whole

    async def _whole(self, path: str, request: _Message) -> _Message:
        """The whole object, fetched at the first time; several who want it wait for one."""
        kept = self._kept.get(path)
        if kept is None:
            kept = self._kept[path] = asyncio.get_running_loop().create_future()
            headers = {name: text for name, text in request.headers.items() if name != "range"}
            try:
                answer = await self._ask(_Message(f"GET {path} HTTP/1.1", headers, b""))
            except OSError as error:
                self._kept.pop(path, None)
                kept.set_exception(error)
                raise
            if answer.status != HTTPStatus.OK:
                self._kept.pop(path, None)
            kept.set_result(answer)
        return await kept

    async def _ask(self, request: _Message) -> _Message:
        """Ask the origin."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.origin, limit=_HEAD_BYTES)
        try:
            length = {"content-length": str(len(request.body))} if request.body else {}
            writer.write(request.head(connection="close", **length) + request.body)
            answer = _parsed(await reader.readuntil(b"\r\n\r\n"), b"")
            if request.line.startswith("HEAD "):
                return answer
            return _Message(answer.line, answer.headers, await _body(answer.headers, reader, to_the_end=True))
        finally:
            writer.close()


def _parsed(head: bytes, body: bytes) -> _Message:
    line, *headers = head.decode("latin1").removesuffix("\r\n\r\n").split("\r\n")
    pairs = (header.partition(":") for header in headers)
    return _Message(line, {name.strip().lower(): text.strip() for name, _, text in pairs}, body)


async def _body(headers: Mapping[str, str], reader: asyncio.StreamReader, *, to_the_end: bool = False) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return b"".join([chunk async for chunk in _chunks(reader)])
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return await reader.read() if to_the_end else b""


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while length := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield await reader.readexactly(length)
        await reader.readexactly(2)
    while (await reader.readuntil(b"\r\n")) != b"\r\n":
        pass


def _part(whole: _Message, wanted: str | None) -> _Message:
    """Give the part of an object that a `Range` header names: `bytes=first-last`, `bytes=first-` or `bytes=-count`."""
    if wanted is None:
        return whole
    size = len(whole.body)
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= size:
        return _Message("HTTP/1.1 416 Range Not Satisfiable", {"content-range": f"bytes */{size}"}, b"")
    headers = dict(whole.headers) | {"content-range": f"bytes {start}-{end - 1}/{size}"}
    return _Message("HTTP/1.1 206 Partial Content", headers, whole.body[start:end])


def _kind(method: str, target: str, headers: Mapping[str, str]) -> str:
    if method != "GET":
        return method
    query = parse_qs(urlsplit(target).query, keep_blank_values=True)
    if "list-type" in query or "/" not in urlsplit(target).path.strip("/"):
        return "LIST"
    return "RANGE" if "range" in headers else "GET"


async def _run(origin: int) -> None:
    proxy = Proxy(origin)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=_HEAD_BYTES, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    # The end of the input is the end of the process that started this one.
    while line := await commands.readline():
        command = json.loads(line)
        answer: dict[str, object] = {}
        if command.get("take"):
            answer = asdict(proxy.take())
        else:
            proxy.latency, proxy.bandwidth = command["latency"], command["bandwidth"]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1])))
