"""What this half is built on. Each half has its own, with the same names."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from threading import Lock, Thread
from time import sleep
from typing import Any, BinaryIO, TypeVar

from .._local import CHUNK_BYTES
from .._protocol import Stop
from ..errors import TimedOut

__all__ = ["Background", "Content", "Lock", "Rows", "TokenProvider", "chunks_of", "shield", "sleep", "to_thread"]

T = TypeVar("T")

#: A text, bytes, a file that was opened as binary, or chunks of bytes.
Content = str | bytes | BinaryIO | Iterable[bytes]
#: Gives the token of each request. After one was refused it is asked once more, with that one.
TokenProvider = Callable[[str | None], str | None]


class Background:
    """Something that runs beside its caller, in a thread, until it ends or is stopped."""

    def __init__(self, run: Callable[[Stop], None], stop: Stop | None = None) -> None:
        self._stop = stop or Stop()
        #: What it has failed with.
        self.error: BaseException | None = None
        self._thread = Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def _run(self, run: Callable[[Stop], None]) -> None:
        try:
            run(self._stop)
        except BaseException as error:
            # A stream that was cut to stop it is no failure.
            if not self._stop.is_set:
                self.error = error

    def wait(self, timeout_ms: float | None = None) -> None:
        """Waits for its end. Raises what it failed with, and TimedOut when it hasn't ended in time."""
        self._thread.join(None if timeout_ms is None else timeout_ms / 1000)
        if self._thread.is_alive():
            raise TimedOut("It did not end in time.")
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Ends it, without waiting for what runs just now. Raises what it failed with before."""
        self._stop.set()
        if self.error is not None:
            raise self.error


#: Rows are read at once.
Rows = list


def shield(value: T) -> T:
    return value


def to_thread(call: Callable[..., T], *given: Any) -> T:
    return call(*given)


def chunks_of(content: Content) -> Generator[bytes, None, None]:
    if isinstance(content, (str, bytes)):
        yield content.encode() if isinstance(content, str) else content
    elif hasattr(content, "read"):
        while chunk := content.read(CHUNK_BYTES):
            yield chunk
    else:
        yield from content
