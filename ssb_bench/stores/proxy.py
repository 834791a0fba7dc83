"""A proxy before an S3 server: delays each answer, bounds the bytes a second, and notes each request.

Runs as a process of its own (`python -m ssb_bench.stores.proxy ORIGIN_PORT`). The first line of its output is its port.
Then each line of its input is a command: `{"latency": s, "bandwidth": b}` (seconds before each answer, bytes a second
each way or null) is answered by `[]`, `{}` by the requests that ended since the last time.

A Python S3 server takes 5 ms of a processor for an answer. A store takes none of this machine's, so the proxy keeps
what it has fetched and answers a second GET or HEAD itself, until the key is written or deleted.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Final

from aiohttp import ClientSession, TCPConnector, web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ssb_bench.stores.server import Request

_CHUNK_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 256 * 1024
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "expect", "te", "upgrade"})
_AUTOMATIC: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer of the origin, or a part of one."""

    status: int
    headers: CIMultiDict[str]
    body: bytes


@dataclass(slots=True)
class _Link:
    """One direction of the line that all connections share."""

    free_at: float = 0.0

    async def passes(self, length: int, bandwidth: float | None) -> None:
        """Wait until this many bytes are through."""
        if bandwidth is None or not length:
            return
        self.free_at = max(self.free_at, time.perf_counter()) + length / bandwidth
        await asyncio.sleep(self.free_at - time.perf_counter())


@dataclass(slots=True)
class Proxy:
    """The proxy: seconds before each answer, bytes a second each way, None for no bound, and the requests so far."""

    origin: int
    latency: float = 0.0
    bandwidth: float | None = None
    requests: list[Request] = field(default_factory=list)
    _down: _Link = field(default_factory=_Link)
    _up: _Link = field(default_factory=_Link)
    _kept: dict[str, asyncio.Future[_Answer]] = field(default_factory=dict)
    _client: ClientSession = field(init=False)

    async def run(self) -> int:
        """Start to serve; return the port."""
        # The origin answers one request a connection, so that none waits for a connection that the origin has closed.
        self._client = ClientSession(connector=TCPConnector(limit=0, force_close=True), auto_decompress=False)
        server = web.Server(self._serve, max_field_size=_HEAD_BYTES, max_line_size=_HEAD_BYTES)
        listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, backlog=4096)
        return int(listening.sockets[0].getsockname()[1])

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        began = time.perf_counter()
        if "expect" in request.headers:
            # Clients wait for this a second; what has been written counts as the head of an answer otherwise.
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        body = await request.content.read()
        await self._up.passes(len(body), self.bandwidth)
        answer = await self._answer_of(request, body)
        await asyncio.sleep(began + self.latency - time.perf_counter())
        sent = b"" if request.method == "HEAD" else answer.body
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        if request.method != "HEAD":
            response.content_length = len(sent)
        await response.prepare(request)
        for start in range(0, len(sent), _CHUNK_BYTES):
            chunk = sent[start : start + _CHUNK_BYTES]
            await self._down.passes(len(chunk), self.bandwidth)
            await response.write(chunk)
        await response.write_eof()
        ended, key = time.perf_counter(), request.rel_url.raw_path.lstrip("/")
        self.requests.append(Request(began, ended, _kind(request), key, len(sent), len(body), answer.status))
        return response

    async def _answer_of(self, request: web.BaseRequest, body: bytes) -> _Answer:
        path = request.rel_url.raw_path
        if request.method in ("GET", "HEAD"):
            is_plain = not (request.query.keys() - {"x-id"}) and _names_a_key(request)
            if is_plain and (request.method == "GET" or path in self._kept):
                whole = await self._whole(path, request.headers)
                is_part = _kind(request) == "RANGE" and whole.status == HTTPStatus.OK
                return _part(whole, request.http_range) if is_part else whole
        answer = await self._ask(request.method, request.raw_path, request.headers, body)
        if request.method == "POST" and "delete" in request.query:
            # This deletes many keys; everything else changes its own key.
            self._kept.clear()
        elif request.method not in ("GET", "HEAD"):
            self._kept.pop(path, None)
        return answer

    async def _whole(self, path: str, headers: Mapping[str, str]) -> _Answer:
        """The whole object, fetched at the first time; several who want it wait for one."""
        if path not in self._kept:
            unranged = {name: text for name, text in headers.items() if name.lower() != "range"}
            self._kept[path] = asyncio.ensure_future(self._ask("GET", path, unranged, b""))
        answer: _Answer | None = None
        try:
            # A client that goes away must not take the answer from others.
            answer = await asyncio.shield(self._kept[path])
            return answer
        finally:
            if answer is None or answer.status != HTTPStatus.OK:
                self._kept.pop(path, None)

    async def _ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> _Answer:
        """Ask the origin. The target keeps its spelling, as the request's signature covers it."""
        url = URL(f"http://127.0.0.1:{self.origin}{target}", encoded=True)
        asked = self._client.request(
            method, url, headers=_end_to_end(headers), data=body or None, skip_auto_headers=_AUTOMATIC
        )
        async with asked as answer:
            return _Answer(answer.status, _end_to_end(answer.headers), await answer.read())


def _end_to_end(headers: Mapping[str, str] | CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, text) for name, text in headers.items() if name.lower() not in _HOP_BY_HOP)


def _part(whole: _Answer, wanted: slice) -> _Answer:
    """Give the part of an object that a `Range` header names."""
    size = len(whole.body)
    start, end, _ = wanted.indices(size)
    if start >= size:
        return _Answer(416, CIMultiDict({"content-range": f"bytes */{size}"}), b"")
    headers = whole.headers.copy()
    headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    return _Answer(206, headers, whole.body[start:end])


def _kind(request: web.BaseRequest) -> str:
    if request.method != "GET":
        return request.method
    kind = "RANGE" if "range" in request.headers else "GET"
    return kind if _names_a_key(request) else "LIST"


def _names_a_key(request: web.BaseRequest) -> bool:
    return "/" in request.path.strip("/")


async def _run(origin: int) -> None:
    proxy = Proxy(origin)
    sys.stdout.write(f"{await proxy.run()}\n")
    sys.stdout.flush()
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    # The end of the input is the end of the process that started this one.
    while line := await commands.readline():
        command = json.loads(line)
        answer: list[Request] = []
        if command:
            proxy.latency, proxy.bandwidth = command["latency"], command["bandwidth"]
        else:
            answer, proxy.requests = proxy.requests, []
        sys.stdout.write(json.dumps([*map(asdict, answer)]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1])))
