from __future__ import annotations

from collections.abc import Generator
from math import ceil
from time import monotonic
from typing import Any

from .._protocol import (
    MAX_INPUT_CHUNK,
    WAIT_GRACE_SECONDS,
    WAIT_SECONDS,
    OutputBytes,
    OutputChunk,
    OutputReader,
    Request,
    Stop,
    fill_path,
    to_bytes,
)
from ..errors import TimedOut
from ..records import ProcessRecord, TakenInput
from .http import Http
from .runtime import Lock


class Process:
    """A process of a sandbox. It runs on when the client leaves."""

    def __init__(self, http: Http, sandbox_id: str, record: ProcessRecord) -> None:
        self._http = http
        #: By which `commands.connect` finds it again.
        self.id = record.id
        #: What was last known of it.
        self.record = record
        self._path = fill_path("/sandboxes/{sandbox}/processes/{process}", sandbox=sandbox_id, process=self.id)
        self._writing = Lock()

    def refresh(self, *, timeout_ms: float | None = None) -> ProcessRecord:
        self.record = self._http.call(Request("GET", self._path, timeout_ms=timeout_ms), ProcessRecord)
        return self.record

    @property
    def output(self) -> Generator[OutputChunk, None, None]:
        """All output that is kept, as text, until the process ends. Each use follows it anew."""
        return self.follow()

    def follow(self, after: int = 0) -> Generator[OutputChunk, None, None]:
        """Output as text, after so many bytes, until the process ends; over connections that break off, too."""
        reader = OutputReader()
        for chunk in self._read(reader, after):
            text = reader.decode(chunk)
            if text.data:
                yield text
        for text in reader.end():
            yield text

    def follow_bytes(self, after: int = 0) -> Generator[OutputBytes, None, None]:
        """Output as it is, after so many bytes, until the process ends; over connections that break off, too."""
        for chunk in self._read(OutputReader(), after):
            yield chunk

    def _read(
        self, reader: OutputReader, after: int, stop: Stop | None = None
    ) -> Generator[OutputBytes, None, None]:
        def open_output(last_id: str | None) -> Request:
            return output_request(self._path, last_id)

        for event in self._http.follow(open_output, stop, str(after)):
            chunk = reader.read(event)
            if reader.process is not None:
                self.record = reader.process
            if chunk is not None:
                yield chunk

    def write(self, data: str | bytes) -> None:
        """Writes to its standard input, which `stdin_open` opened. Each byte arrives once, in order. Others may write to
        it too, but not at the same moment."""
        rest = to_bytes(data)
        with self._writing:
            # Others may have written, and how much is taken of a write that fails is not known.
            start = (self._post_input(b"")).offset
            while rest:
                taken = self._post_input(rest[:MAX_INPUT_CHUNK], offset=start)
                rest = rest[taken.offset - start :]
                start = taken.offset

    def close_stdin(self) -> None:
        """Ends its standard input; in a terminal Ctrl-D is typed."""
        with self._writing:
            self._post_input(b"", eof=True)

    def _post_input(self, data: bytes, **query: Any) -> TakenInput:
        """Bytes at an offset that was reached before are not written again, so it may be repeated."""
        request = Request("POST", f"{self._path}/stdin", query, content=data, repeatable=True)
        # A full pipe is answered after 30 s.
        request.attempt_seconds = 60
        return self._http.call(request, TakenInput)

    def signal(self, name: str, *, timeout_ms: float | None = None) -> None:
        """Sends a signal of Linux by its name."""
        self._http.read(Request("POST", f"{self._path}/signal", json={"signal": name}, timeout_ms=timeout_ms))

    def kill(self, *, timeout_ms: float | None = None) -> None:
        """Ends it with all its descendants: SIGTERM, and SIGKILL 5 s later. Nothing happens when it has ended."""
        self._http.read(Request("DELETE", self._path, timeout_ms=timeout_ms))

    def wait(self, timeout_ms: float | None = None) -> ProcessRecord:
        """Waits until it has ended; raises TimedOut when it hasn't in time."""
        deadline = None if timeout_ms is None else monotonic() + timeout_ms / 1000
        while True:
            left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, ceil(deadline - monotonic()))
            if left <= 0:
                raise TimedOut("The process did not end in time.")
            request = Request("POST", f"{self._path}/wait", json={"timeout_seconds": left}, repeatable=True)
            request.attempt_seconds = left + WAIT_GRACE_SECONDS
            self.record = self._http.call(request, ProcessRecord)
            if self.record.state != "running":
                return self.record


def output_request(process_path: str, after: str | None) -> Request:
    query = {"encoding": "base64", "after": after or "0"}
    return Request("GET", f"{process_path}/output", query, headers={"accept": "text/event-stream"})
