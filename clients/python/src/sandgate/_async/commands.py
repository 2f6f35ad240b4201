from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from math import ceil
from time import monotonic
from typing import Any

from .._protocol import (
    LONGEST_SECONDS,
    MAX_INPUT_CHUNK,
    WAIT_GRACE_SECONDS,
    WAIT_SECONDS,
    Command,
    CommandResult,
    OutputChunk,
    OutputReader,
    Record,
    Request,
    command_fields,
    fill_path,
    given,
    new_key,
    to_bytes,
    to_result,
)
from ..errors import SandgateError, TimedOut
from .http import AsyncHttp


class Process:
    """A process of a sandbox. It runs on when the client leaves."""

    def __init__(self, http: AsyncHttp, sandbox_id: str, record: Record) -> None:
        self._http = http
        self.id: str = record.id
        #: What was last known of it.
        self.record = record
        self._path = fill_path("/sandboxes/{sandbox}/processes/{process}", sandbox=sandbox_id, process=self.id)
        self._input_offset: int | None = None

    async def refresh(self) -> Record:
        self.record = await self._http.call(Request("GET", self._path))
        return self.record

    async def follow(self, after: int = 0) -> AsyncGenerator[OutputChunk, None]:
        """Output as text, after so many bytes, until the process ends; over connections that break off, too."""
        reader = OutputReader()

        def open_output(last_id: str | None) -> Request:
            return output_request(self._path, last_id)

        async for event in self._http.follow(open_output, str(after)):
            chunk = reader.read(event)
            if reader.process is not None:
                self.record = reader.process
            if chunk is not None and chunk.data:
                yield chunk
        for chunk in reader.end():
            yield chunk

    @property
    def output(self) -> AsyncGenerator[OutputChunk, None]:
        """All output that is kept, until the process ends. Each use follows it anew."""
        return self.follow()

    async def write(self, data: str | bytes) -> None:
        """Writes to its standard input, which `stdin_open` opened. Each byte arrives once, in order."""
        rest = to_bytes(data)
        while rest:
            rest = rest[await self._send_input(rest[:MAX_INPUT_CHUNK]) :]

    async def close_stdin(self) -> None:
        await self._send_input(b"", eof=True)

    async def _send_input(self, data: bytes, eof: bool | None = None) -> int:
        """Returns how many bytes were taken. Bytes at an offset that was reached before are not written again."""
        if self._input_offset is None:
            self._input_offset = (await self._post_input(b"")).offset
        start: int = self._input_offset
        end: int = (await self._post_input(data, offset=start, eof=eof)).offset
        self._input_offset = end
        return end - start

    async def _post_input(self, data: bytes, **query: Any) -> Any:
        request = Request("POST", f"{self._path}/stdin", given(**query), content=data, repeatable=True)
        # A full pipe is answered after 30 s.
        request.attempt_seconds = 60
        return await self._http.call(request)

    async def signal(self, name: str) -> None:
        """Sends a signal of Linux by its name."""
        await self._http.call(Request("POST", f"{self._path}/signal", json={"signal": name}))

    async def kill(self) -> None:
        """Ends it with all its descendants: SIGTERM, and SIGKILL 5 s later. Nothing happens when it has ended."""
        await self._http.call(Request("DELETE", self._path))

    async def wait(self, timeout_ms: float | None = None) -> Record:
        """Waits until it has ended; raises TimedOut when it hasn't in time."""
        deadline = None if timeout_ms is None else monotonic() + timeout_ms / 1000
        while True:
            left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, ceil(deadline - monotonic()))
            if left <= 0:
                raise TimedOut("The process did not end in time.")
            request = Request("POST", f"{self._path}/wait", json={"timeout_seconds": left}, repeatable=True)
            request.attempt_seconds = left + WAIT_GRACE_SECONDS
            self.record = await self._http.call(request)
            if self.record.state != "running":
                return self.record


class Commands:
    """The commands of a sandbox: a program and its arguments, or a text for `/bin/sh -c`."""

    def __init__(self, http: AsyncHttp, sandbox_id: str) -> None:
        self._http = http
        self._sandbox_id = sandbox_id
        self._path = fill_path("/sandboxes/{sandbox}", sandbox=sandbox_id)

    async def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        tag: str | None = None,
        stdin: str | bytes | None = None,
        timeout_ms: float | None = None,
        check: bool = False,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
    ) -> CommandResult:
        """Runs a command and gives its output when it has ended. It runs once, and no output is lost, also when
        connections break off. A non-zero exit is a result unless `check` is set. Raises CommandTimedOut when its time
        is up."""
        body = command_fields(command, stdin, cwd=cwd, env=env, user=user, tag=tag)
        seconds = LONGEST_SECONDS if timeout_ms is None else max(1, ceil(timeout_ms / 1000))
        body |= {"encoding": "base64", "on_disconnect": "continue", "timeout_seconds": seconds}
        key = new_key()
        reader = OutputReader()
        texts = {"stdout": "", "stderr": ""}

        def open_stream(last_id: str | None) -> Request:
            if reader.process is not None:
                return output_request(f"{self._path}/processes/{reader.process.id}", last_id)
            headers = {"accept": "text/event-stream"}
            return Request("POST", f"{self._path}/exec", json=body, headers=headers, idempotency_key=key)

        def add(chunk: OutputChunk) -> None:
            name = "stderr" if chunk.stream == "stderr" else "stdout"
            texts[name] += chunk.data
            tell = on_stderr if name == "stderr" else on_stdout
            if chunk.data and tell is not None:
                tell(chunk.data)

        try:
            async for event in self._http.follow(open_stream):
                chunk = reader.read(event)
                if chunk is not None:
                    add(chunk)
        finally:
            # Whoever has left has no handle to end it by.
            if reader.process is not None and reader.process.state == "running":
                try:
                    path = f"{self._path}/processes/{reader.process.id}"
                    await self._http.call(Request("DELETE", path, timeout_ms=10_000))
                except SandgateError:
                    # It is what failed first that is told.
                    pass
        for rest in reader.end():
            add(rest)
        return to_result(reader, texts, command, check)

    async def start(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        tag: str | None = None,
        stdin: str | bytes | None = None,
        stdin_open: bool | None = None,
        timeout_seconds: int | None = None,
        idempotency_key: str | None = None,
    ) -> Process:
        """Starts a command, which runs on by itself."""
        fields = given(stdin_open=stdin_open, timeout_seconds=timeout_seconds)
        body = command_fields(command, stdin, cwd=cwd, env=env, user=user, tag=tag, **fields)
        key = idempotency_key or new_key()
        record = await self._http.call(Request("POST", f"{self._path}/processes", json=body, idempotency_key=key))
        return Process(self._http, self._sandbox_id, record)

    async def list(self, *, state: str | None = None, tag: str | None = None) -> list[Record]:
        """Those that run and the newest that have ended."""
        answer = await self._http.call(Request("GET", f"{self._path}/processes", given(state=state, tag=tag)))
        return [*answer.processes]

    async def connect(self, id: str) -> Process:
        """Finds a process again by its id."""
        record = await self._http.call(Request("GET", fill_path(self._path + "/processes/{id}", id=id)))
        return Process(self._http, self._sandbox_id, record)


def output_request(process_path: str, after: str | None) -> Request:
    query = {"encoding": "base64", "after": after or "0"}
    return Request("GET", f"{process_path}/output", query, headers={"accept": "text/event-stream"})
