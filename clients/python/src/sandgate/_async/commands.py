from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from .._protocol import (
    LONGEST_SECONDS,
    MAX_INLINE_INPUT,
    UNDO_MS,
    Command,
    CommandResult,
    OutputChunk,
    OutputReader,
    Request,
    Stop,
    command_fields,
    fill_path,
    given,
    may_be_made,
    new_key,
    to_bytes,
    to_result,
)
from ..errors import SandgateError
from ..records import ProcessList, ProcessRecord
from .http import AsyncHttp
from .process import Process, output_request
from .runtime import Background

Processes = list[ProcessRecord]
Texts = list[str]


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
        is up, which is rounded up to seconds."""
        seconds = LONGEST_SECONDS if timeout_ms is None else max(1, ceil(timeout_ms / 1000))
        reader = OutputReader()
        feeding: Background | None = None
        key = new_key()
        texts: dict[str, Texts] = {"stdout": [], "stderr": []}
        long_input = to_bytes(stdin) if stdin is not None and len(to_bytes(stdin)) > MAX_INLINE_INPUT else None
        body = command_fields(command, None if long_input else stdin, cwd=cwd, env=env, user=user, tag=tag)
        body |= {"encoding": "base64", "on_disconnect": "continue", "timeout_seconds": seconds}

        async def start_open(timeout_ms: float | None) -> Process:
            return await self.start(
                command,
                cwd=cwd,
                env=env,
                user=user,
                tag=tag,
                stdin_open=True,
                timeout_seconds=seconds,
                idempotency_key=key,
                timeout_ms=timeout_ms,
            )

        def open_stream(last_id: str | None) -> Request:
            if reader.process is not None:
                return output_request(f"{self._path}/processes/{reader.process.id}", last_id)
            headers = {"accept": "text/event-stream"}
            return Request("POST", f"{self._path}/exec", json=body, headers=headers, idempotency_key=key)

        def add(chunk: OutputChunk) -> None:
            name = "stderr" if chunk.stream == "stderr" else "stdout"
            texts[name].append(chunk.data)
            tell = on_stderr if name == "stderr" else on_stdout
            if chunk.data and tell is not None:
                tell(chunk.data)

        try:
            if long_input is not None:
                process = await start_open(None)
                reader.process = process.record
                feeding = Background(Feeder(process, long_input).feed)
            async for event in self._http.follow(open_stream):
                chunk = reader.read(event)
                if chunk is not None:
                    add(reader.decode(chunk))
        except BaseException as error:
            if reader.process is None and may_be_made(error):
                try:
                    if long_input is not None:
                        reader.process = (await start_open(UNDO_MS)).record
                    else:
                        reader.process = await self._find_started(open_stream(None))
                except SandgateError:
                    # It is what failed first that is told.
                    pass
            raise
        finally:
            # Whoever has left has no handle to end it by.
            if reader.process is not None and reader.process.state == "running":
                await self._end(reader.process.id)
            if feeding is not None:
                await feeding.stop()
        for rest in reader.end():
            add(rest)
        return to_result(reader, texts, command, check)

    async def _find_started(self, request: Request) -> ProcessRecord | None:
        """The process of a command that was sent before."""
        request.timeout_ms = UNDO_MS
        reader = OutputReader()
        events = self._http.follow(lambda _: request)
        reader.read(await anext(events))
        await events.aclose()
        return reader.process

    async def _end(self, id: str) -> None:
        try:
            await self._http.read(Request("DELETE", f"{self._path}/processes/{id}", timeout_ms=UNDO_MS))
        except SandgateError:
            # It is what failed first that is told.
            pass

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
        pty: Mapping[str, int] | None = None,
        idempotency_key: str | None = None,
        timeout_ms: float | None = None,
    ) -> Process:
        """Starts a command, which runs on by itself. `stdin` is what it reads first, 384 KiB at most."""
        fields = given(stdin_open=stdin_open, timeout_seconds=timeout_seconds, pty=pty)
        body = command_fields(command, stdin, cwd=cwd, env=env, user=user, tag=tag, **fields)
        request = Request("POST", f"{self._path}/processes", json=body, timeout_ms=timeout_ms)
        request.idempotency_key = idempotency_key or new_key()
        return Process(self._http, self._sandbox_id, await self._http.call(request, ProcessRecord))

    async def list(
        self, *, state: str | None = None, tag: str | None = None, timeout_ms: float | None = None
    ) -> Processes:
        """Those that run and the newest that have ended."""
        request = Request("GET", f"{self._path}/processes", given(state=state, tag=tag), timeout_ms=timeout_ms)
        return (await self._http.call(request, ProcessList)).processes

    async def connect(self, id: str, *, timeout_ms: float | None = None) -> Process:
        """Finds a process again by its id."""
        request = Request("GET", fill_path(self._path + "/processes/{id}", id=id), timeout_ms=timeout_ms)
        return Process(self._http, self._sandbox_id, await self._http.call(request, ProcessRecord))


class Feeder:
    """Writes a long input, and closes it. What the process no longer reads is of no interest."""

    def __init__(self, process: Process, data: bytes) -> None:
        self._process = process
        self._data = data

    async def feed(self, stop: Stop) -> None:
        try:
            await self._process.write(self._data)
            await self._process.close_stdin()
        except SandgateError:
            if stop.is_set or (await self._process.refresh()).state != "running":
                return
            await self._process.kill()
            raise
