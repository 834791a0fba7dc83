"""Objects of S3 stores, read by obstore: ranges side by side, and no request for a size that is known.

PyArrow's S3 files ask for their size when they are opened, and all of them share 25 connections. Here, a store has as
many connections as requests are under way; for many objects, an event loop sends a request in half the processor time
of a thread. What obstore cannot do as PyIceberg does is left to PyIceberg's FileIO.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.utils.properties import get_first_property_value, property_as_bool

from puffin_index.storage.caches import shared_cache

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Credential, S3Store

SCHEMES: Final = ("s3://", "s3a://", "s3n://")
_LEFT_TO_PYARROW: Final = (
    "s3.role-arn",
    "client.role-arn",
    "s3.profile-name",
    "client.profile-name",
    "s3.retry-strategy-impl",
    "s3.signer",
)
_OTHER_PARTS: Final = frozenset({"", ".", ".."})
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
_PROFILE: Final = "AWS_PROFILE"
_REQUEST_TIMEOUT: Final = timedelta(minutes=10)
_READ_SECONDS: Final = 30
_CONNECT_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a store, which may not exist."""

    location: str
    _store: S3Store
    _key: str

    def read(self, offset: int, length: int) -> memoryview:
        """Return up to `length` bytes from an offset, or raise FileNotFoundError, or OSError if it cannot be read."""
        from obstore import get_range

        if not length:
            return memoryview(b"")
        with self._errors():
            return memoryview(get_range(self._store, self._key, start=offset, length=length)).cast("B")

    async def read_async(self, offset: int, length: int) -> memoryview:
        """Return up to `length` bytes from `offset`, as `read` does."""
        from obstore import get_range_async

        if not length:
            return memoryview(b"")
        with self._errors():
            return memoryview(await get_range_async(self._store, self._key, start=offset, length=length)).cast("B")

    def read_all(self) -> memoryview:
        """Return the whole object, by one request, or raise FileNotFoundError, or OSError if it cannot be read."""
        from obstore import get

        with self._errors():
            return memoryview(get(self._store, self._key).bytes()).cast("B")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        if os.getpid() != _process["id"]:
            # The threads that would answer are not in this process.
            raise OSError(f"{self.location}: it was opened before this process was forked: open it again")
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"file not found: {self.location}") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise PermissionError(f"{self.location}: access denied: {_said(error)}") from error
        except BaseError as error:
            raise OSError(f"{self.location}: cannot be read: {_said(error)}") from error


def _said(error: Exception) -> str:
    """The first line of what obstore says: its own structures follow after that."""
    return " ".join(str(error).partition("Debug source:")[0].split())


class OwnFileIO(PyArrowFileIO):
    """PyArrow's FileIO with something added here. Subclasses of others may have keys and endpoints of their own."""


def find_object(io: FileIO, location: str) -> StoredObject | None:
    """Return the object at a location; None if only the FileIO itself can read there as its properties say."""
    if not location.startswith(SCHEMES) or not (type(io) is PyArrowFileIO or isinstance(io, OwnFileIO)):
        return None
    bucket, _, key = location.partition("://")[2].partition("/")
    # obstore takes keys for paths, and other paths for the same.
    if not _OTHER_PARTS.isdisjoint(key.split("/")):
        return None
    store = _store(bucket, io.properties)
    return None if store is None else StoredObject(location, store, key)


_stores, _stores_lock = shared_cache(64)
_process: dict[str, int] = {}


def _store(bucket: str, properties: Mapping[str, str]) -> S3Store | None:
    """The store of a bucket, with its connections, or None if obstore cannot read as PyIceberg would."""
    known = {name: text for name, text in properties.items() if name.startswith(("s3.", "client."))}
    # The threads of obstore are not in a process that was forked afterwards.
    if os.getpid() != _process.setdefault("id", os.getpid()):
        return None
    key = (bucket, *sorted(known.items()), *_keys_of_environment())
    with _stores_lock:
        store: S3Store | None = _stores.get(key)
        if store is None:
            store = _new_store(bucket, known)
            if store is not None:
                _stores[key] = store
    return store


def _new_store(bucket: str, properties: Mapping[str, str]) -> S3Store | None:
    region = get_first_property_value(dict(properties), "s3.region", "client.region")
    endpoint = properties.get("s3.endpoint")
    is_virtual = property_as_bool(dict(properties), "s3.force-virtual-addressing", False)
    is_anonymous = property_as_bool(dict(properties), "s3.anonymous", False)
    credentials = _credentials(properties)
    if (
        any(properties.get(name) for name in _LEFT_TO_PYARROW)
        or property_as_bool(dict(properties), "s3.resolve-region", False)
        or region is None
        or (is_virtual and endpoint is not None)
        or (endpoint is None and any(os.environ.get(name) for name in _ENDPOINTS))
        or (credentials is None and not is_anonymous)
    ):
        return None
    from obstore.store import S3Store

    # As Amazon's own clients do, whose certificates do not cover buckets with dots.
    in_host = endpoint is None and "." not in bucket
    config: S3Config = {"region": region, "virtual_hosted_style_request": in_host, "skip_signature": is_anonymous}
    if endpoint is not None:
        config["endpoint"] = endpoint
    options: ClientConfig = {
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
        "timeout": _REQUEST_TIMEOUT,
        "read_timeout": timedelta(seconds=float(properties.get("s3.request-timeout", _READ_SECONDS))),
        "connect_timeout": timedelta(seconds=float(properties.get("s3.connect-timeout", _CONNECT_SECONDS))),
    }
    if "s3.proxy-uri" in properties:
        options["proxy_url"] = properties["s3.proxy-uri"]
    # Keys that are given as settings would be mixed with a session token of the environment.
    provider = None if is_anonymous else credentials
    return S3Store(bucket, config=config, client_options=options, credential_provider=provider)


def _credentials(properties: Mapping[str, str]) -> Callable[[], S3Credential] | None:
    """What gives the keys of the properties, or those of the environment; None if others are to be looked for."""
    of_properties = [
        get_first_property_value(dict(properties), f"s3.{name}", f"client.{name}")
        for name in ("access-key-id", "secret-access-key", "session-token")
    ]
    key, secret, token = of_properties if any(of_properties) else _keys_of_environment()
    if not key or not secret:
        return None
    given: S3Credential = {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
    return lambda: given


def _keys_of_environment() -> tuple[str | None, ...]:
    if os.environ.get(_PROFILE):
        return None, None, None
    return tuple(os.environ.get(f"AWS_{name}") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"))


ObjectSpan: TypeAlias = tuple[StoredObject, int, int]
"""An object, an offset in it, and a length in bytes."""


def read_many(spans: Sequence[ObjectSpan], at_once: int) -> list[memoryview | None]:
    """Read ranges of objects, some at once; None where a range cannot be read whole."""
    found: list[memoryview | None] = [None] * len(spans)
    # The caller's thread may have an event loop of its own, as notebooks do.
    with ThreadPoolExecutor(1, thread_name_prefix="puffin-index-many") as thread:
        try:
            running = thread.submit(lambda: asyncio.run(_read_many(spans, at_once, found)))
        except RuntimeError:
            # The system has no more threads for this process.
            return found
        running.result()
    return found


async def _read_many(spans: Sequence[ObjectSpan], at_once: int, found: list[memoryview | None]) -> None:
    async def read_in_turn(first: int) -> None:
        for number in range(first, len(spans), at_once):
            found[number] = await _read(*spans[number])

    await asyncio.gather(*(read_in_turn(first) for first in range(min(at_once, len(spans)))))


async def _read(stored: StoredObject, offset: int, length: int) -> memoryview | None:
    try:
        data = await stored.read_async(offset, length)
    except OSError:
        return None
    return data if len(data) == length else None
