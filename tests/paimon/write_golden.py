"""Write the golden files of Paimon's index blobs: `python -m tests.paimon.write_golden`."""

from pathlib import Path

from puffin_index.formats.paimon_container import write_container
from tests.paimon.referee import Paimon, start_paimon
from tests.puffin_index.kinds.golden_columns import GOLDEN_KINDS, GOLDEN_TYPES, golden_values

GOLDEN = Path(__file__).parents[1] / "golden"


def golden_container(paimon: Paimon, type_name: str) -> bytes:
    """All blobs that Paimon writes of the golden column of a type, in a container."""
    blobs = {
        name: {kind: paimon.write(kind, type_name, golden_values(type_name), options)}
        for name in GOLDEN_TYPES[type_name]
        for kind, options in [GOLDEN_KINDS[name]]
    }
    return write_container({name: dict(blob) for name, blob in blobs.items()})


if __name__ == "__main__":
    referee = start_paimon()
    for golden_type in GOLDEN_TYPES:
        (GOLDEN / f"paimon_{golden_type}.bin").write_bytes(golden_container(referee, golden_type))
