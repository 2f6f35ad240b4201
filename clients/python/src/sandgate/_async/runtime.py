"""What this half is built on. Each half has its own, with the same names."""

from __future__ import annotations

import asyncio
from asyncio import Lock, shield, sleep, to_thread
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import BinaryIO, Generic, TypeVar

from .._local import CHUNK_BYTES
from .._protocol import Stop
from ..errors import TimedOut

__all__ = ["Background", "Content", "Lock", "Rows", "TokenProvider", "chunks_of", "shield", "sleep", "to_thread"]

T = TypeVar("T")

#: A text, bytes, a file that was opened as binary, or chunks of bytes.
Content = str | bytes | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]
#: Gives the token of each request. After one was refused it is asked once more, with that one.
TokenProvider = Callable[[str | None], Awaitable[str | None]]


class Background:
    """Something that runs beside its caller, until it ends or is stopped."""

    def __init__(self, run: Callable[[Stop], Awaitable[None]], stop: Stop | None = None) -> None:
        self._stop = stop or Stop()
        self._task = asyncio.ensure_future(run(self._stop))

    @property
    def error(self) -> BaseException | None:
        """What it has failed with."""
        ended = self._task.done() and not self._task.cancelled()
        return self._task.exception() if ended else None

    async def wait(self, timeout_ms: float | None = None) -> None:
        """Waits for its end. Raises what it failed with, and TimedOut when it hasn't ended in time."""
        await asyncio.wait({self._task}, timeout=None if timeout_ms is None else timeout_ms / 1000)
        if not self._task.done():
            raise TimedOut("It did not end in time.")
        if self.error is not None:
            raise self.error

    async def stop(self) -> None:
        """Ends it. Raises what it failed with before."""
        self._stop.is_set = True
        self._task.cancel()
        await self.wait()


class Rows(Generic[T]):
    """Rows that are read as they are needed: `async for` goes through them, `await` gives a list of all."""

    def __init__(self, rows: AsyncGenerator[T, None]) -> None:
        self._rows = rows

    def __aiter__(self) -> AsyncIterator[T]:
        return self._rows

    def __await__(self) -> Generator[None, None, list[T]]:
        return self._collect().__await__()

    async def _collect(self) -> list[T]:
        return [row async for row in self._rows]


async def chunks_of(content: Content) -> AsyncGenerator[bytes, None]:
    if isinstance(content, (str, bytes)):
        yield content.encode() if isinstance(content, str) else content
    elif isinstance(content, AsyncIterable):
        async for chunk in content:
            yield chunk
    elif hasattr(content, "read"):
        while chunk := await to_thread(content.read, CHUNK_BYTES):
            yield chunk
    else:
        for chunk in content:
            yield chunk
