"""A real store of which one request fails or comes late: a catalog gets it by `py-io-impl`."""

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

IMPLEMENTATION = f"{__name__}.FaultyFileIO"


@dataclass
class Fault:
    """The request, from 1, that fails, of those for locations with some text in them.

    If something is to happen `first`, the request succeeds after it.
    """

    at: int = 0
    within: str = ""
    seen: int = 0
    first: Callable[[], object] | None = None


FAULT = Fault()


def set_fault(at: int, within: str = "", first: Callable[[], object] | None = None) -> None:
    """Let one request of this process go wrong or wait for something else, counted from now."""
    FAULT.at, FAULT.within, FAULT.seen, FAULT.first = at, within, 0, first


class FaultyFileIO(PyArrowFileIO):
    """PyArrow's store, where the n-th file that is opened, made or deleted gives trouble."""

    def new_input(self, location: str) -> PyArrowFile:
        _request(location)
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        _request(location)
        return super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        _request(location if isinstance(location, str) else location.location)
        super().delete(location)


def _request(location: str) -> None:
    if FAULT.within not in location:
        return
    FAULT.seen += 1
    if FAULT.seen == FAULT.at:
        if FAULT.first is None:
            raise OSError(f"the store does not answer for {location}")
        FAULT.first()
