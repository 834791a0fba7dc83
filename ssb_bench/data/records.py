"""Dataclasses as JSON files, and back.

A class with a `FORMAT` writes that name into its files, and refuses files of another one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from ssb_bench.errors import BenchError

T = TypeVar("T")


def write_record(path: Path, record: object) -> None:
    """Write a dataclass, or a dict of dataclasses, so that the file is there completely or not at all."""
    file_format = getattr(record, "FORMAT", None)
    content = ({} if file_format is None else {"format": file_format}) | to_jsonable_python(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def read_record(path: Path, kind: type[T]) -> T:
    """Read what `write_record` wrote.

    Raises:
        BenchError: If the file is not there, is not JSON or of another format, lacks a field or has one too many.
    """
    found = read_if_there(path, kind)
    if found is None:
        raise BenchError(f"there is no {path}")
    return found


def read_if_there(path: Path, kind: type[T]) -> T | None:
    """Read what `write_record` wrote, or give None if there is no such file.

    Raises:
        BenchError: As `read_record` does.
    """
    if not path.exists():
        return None
    try:
        # Any: what json.loads gives has no narrower type.
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BenchError(f"{path} is not JSON: {error}") from error
    file_format = getattr(kind, "FORMAT", None)
    if file_format is not None and (not isinstance(content, dict) or content.pop("format", None) != file_format):
        raise BenchError(f"{path} is not of format {file_format}")
    # pydantic takes no configuration for a dataclass of the standard library, but for a tuple of one.
    adapter = TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid"))  # type: ignore[valid-type]
    try:
        return adapter.validate_python((content,))[0]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:]))
        raise BenchError(f"{path} is not a whole {kind.__name__}: {place}: {first['msg']}") from error
