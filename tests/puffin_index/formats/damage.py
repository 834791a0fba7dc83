"""Damaged bytes of a file, small and by chance."""

from collections.abc import Iterator

from hypothesis import strategies as st


def small_damages(data: bytes) -> Iterator[bytes]:
    """Every flipped bit, some replaced bytes, every truncation at either end, and one byte too many."""
    for at in range(len(data)):
        replacements = {data[at] ^ (1 << bit) for bit in range(8)} | {0, 0xFF, ord("0"), ord('"'), ord(" ")}
        for value in replacements - {data[at]}:
            yield data[:at] + bytes([value]) + data[at + 1 :]
    for length in range(len(data)):
        yield data[:length]
        yield data[len(data) - length :]
    yield data + b"\0"
    yield b"\0" + data


@st.composite
def damages(draw: st.DrawFn, data: bytes) -> bytes:
    """A few stretches replaced by others."""
    damaged = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(damaged)))
        end = draw(st.integers(start, min(len(damaged), start + 12)))
        damaged[start:end] = draw(st.binary(max_size=12))
    return bytes(damaged)
