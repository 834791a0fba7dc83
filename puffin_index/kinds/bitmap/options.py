"""The options of the kind `bitmap`.

| option | values | meaning |
| --- | --- | --- |
| `layout` | `auto` (default), `bitmaps`, `postings` | bitmaps per row group, postings per segment, or what pays |
| `version` | `2` (default), `1` | the version of Paimon's format; asks for bitmaps |
| `index-block-size` | `16kb` and the like | the size of the blocks of version 2 |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from puffin_index.errors import DefinitionError
from puffin_index.keys.value_types import ValueType

BitmapLayout = Literal["auto", "bitmaps", "postings"]
OPTION_NAMES = frozenset({"layout", "version", "index-block-size"})
_LAYOUTS: tuple[BitmapLayout, ...] = ("auto", "bitmaps", "postings")
_SIZE = re.compile(r"(\d{1,9})\s*(b|bytes|k|kb|kib|m|mb|mib)?", re.IGNORECASE)
_UNITS = {"b": 1, "k": 1024, "m": 1024 * 1024}
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 64, 64 * 1024 * 1024


def layout_of(options: Mapping[str, str]) -> BitmapLayout:
    """Return the layout of the options; naming a version of Paimon's format means `bitmaps` as well.

    Raises:
        DefinitionError: If the layout is unknown or contradicts the other options.
    """
    asked = options.get("layout", "auto")
    layout = next((layout for layout in _LAYOUTS if layout == asked), None)
    if layout is None:
        raise DefinitionError(f"bitmap option layout={asked} is not one of {', '.join(_LAYOUTS)}")
    if "version" not in options:
        return layout
    if layout == "postings":
        raise DefinitionError("bitmap option layout=postings goes with no version, which is one of Paimon's bitmaps")
    return "bitmaps"


def check_options(value_type: ValueType, options: Mapping[str, str]) -> None:
    """Check that options and their combination suit a column.

    Raises:
        DefinitionError: If they do not; the message names the option and the type.
    """
    try:
        layout = layout_of(options)
    except DefinitionError as error:
        raise DefinitionError(f"{error} (a {value_type.name} column)") from error
    if layout == "postings" and "index-block-size" in options:
        raise DefinitionError(
            f"bitmap option layout=postings of a {value_type.name} column goes with no index-block-size"
        )
    version = options.get("version", "2")
    if version not in ("1", "2"):
        raise DefinitionError(f"bitmap option version={version} of a {value_type.name} column is not 1 or 2")
    if version == "1" and not is_paimon_type(value_type):
        raise DefinitionError(f"bitmap version 1 is for Paimon, whose bitmaps have no {value_type.name} columns")
    if "index-block-size" in options:
        block_bytes_of(options, value_type)


def is_paimon_type(value_type: ValueType) -> bool:
    """Return whether Paimon's bitmaps support a type."""
    return value_type.domain == "int64" or value_type.name == "string"


def block_bytes_of(options: Mapping[str, str], value_type: ValueType) -> int | None:
    """Return the block size of the options in bytes; None if the options leave the size open.

    Raises:
        DefinitionError: If the size is not between 64 bytes and 64 MB.
    """
    text = options.get("index-block-size")
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) * _UNITS[(found[2] or "b")[0].lower()] if found else 0
    if not _LEAST_BLOCK_BYTES <= size <= _MOST_BLOCK_BYTES:
        raise DefinitionError(
            f"bitmap option index-block-size={text} of a {value_type.name} column is not a size from 64 bytes to 64 mb"
        )
    return size
