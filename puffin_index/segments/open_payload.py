"""Opening a payload of a segment, whatever it covers: one row group, or several where payloads were merged."""

from __future__ import annotations

from typing import TypeAlias

from puffin_index.errors import CorruptFileError
from puffin_index.keys.map_key import plain_kind
from puffin_index.keys.values import value_type_named
from puffin_index.kinds.base import BlobIndex
from puffin_index.kinds.bloom.matrix import BLOOM_MATRIX, BloomMatrix
from puffin_index.kinds.merged import MERGED_TYPES, MergedIndex, open_merged
from puffin_index.kinds.registry import KINDS
from puffin_index.segments.directory import FieldKind
from puffin_index.segments.source_segment import SourceSegment
from puffin_index.storage.ranged import Blob, RangedReader

OpenPayload: TypeAlias = BlobIndex | MergedIndex | BloomMatrix


def open_payload(source: SourceSegment, reader: RangedReader, key: FieldKind, row: int) -> OpenPayload:
    """Open a payload without reading it.

    Args:
        source: The segment that has it.
        reader: Its bytes.
        key: The index.
        row: The row of the index's directory.

    Raises:
        CorruptFileError: If its layout describes no such payload, or one of other row groups.
        UnsupportedError: If this release does not read it.
    """
    offset, length = (int(source.directories[key].column(name)[row].as_py()) for name in ("offset", "length"))
    blob, blob_type, layout = Blob(reader, offset, length), source.blob_type(key, row), source.layout(key, row)
    value_type = value_type_named(source.value_type(key))
    spans = source.spans[source.covered(key, row)]
    if blob_type in MERGED_TYPES:
        return open_merged(blob, blob_type, layout, value_type, spans)
    if blob_type == BLOOM_MATRIX:
        return BloomMatrix(blob, layout, value_type, len(spans))
    if len(spans) != 1:
        raise CorruptFileError(
            f"a blob {blob_type} of {len(spans)} row groups", location=source.location, offset=offset
        )
    return KINDS[plain_kind(key[1])].open(blob, blob_type, layout, value_type, int(spans[0, 1]))
