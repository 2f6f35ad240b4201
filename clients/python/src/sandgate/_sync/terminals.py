from __future__ import annotations

from collections.abc import Callable, Mapping

from .._protocol import Command, OutputReader, Request, Stop
from ..records import ProcessRecord
from .commands import Commands
from .http import Http
from .process import Process
from .runtime import Background

DEFAULT_SHELL = "command -v bash >/dev/null 2>&1 && exec bash; exec sh"
OnData = Callable[[bytes], object]


class Terminal:
    """A terminal, whose output is followed over connections that break off. It runs on when the client leaves."""

    def __init__(self, http: Http, process: Process, on_data: OnData | None, after: int = 0) -> None:
        self._http = http
        self._on_data = on_data
        #: What runs in it.
        self.process = process
        self.id = process.id
        #: Bytes of output that have come.
        self.offset = after
        self._following = Background(self._follow)

    def _follow(self, stop: Stop) -> None:
        for chunk in self.process._read(OutputReader(), self.offset, stop):
            self.offset = chunk.offset
            if self._on_data is not None:
                self._on_data(chunk.data)

    def write(self, data: str | bytes) -> None:
        """Types. Each byte arrives once."""
        self.process.write(data)

    def resize(self, cols: int, rows: int, *, timeout_ms: float | None = None) -> None:
        """Changes its size, each 1 to 1,000."""
        size = {"cols": cols, "rows": rows}
        self._http.read(Request("PUT", f"{self.process._path}/pty", json=size, timeout_ms=timeout_ms))

    def kill(self, *, timeout_ms: float | None = None) -> None:
        """Ends what runs in it."""
        self.process.kill(timeout_ms=timeout_ms)

    def wait(self, timeout_ms: float | None = None) -> ProcessRecord:
        """Waits until what runs in it has ended, and all output has come. Raises what `on_data` raised, what the
        connection was lost by, and TimedOut when it hasn't ended in time."""
        self._following.wait(timeout_ms)
        return self.process.refresh()

    def close(self) -> None:
        """No more output is told; the terminal runs on."""
        self._following.stop()


class Terminals:
    """The terminals of a sandbox."""

    def __init__(self, http: Http, sandbox_id: str) -> None:
        self._http = http
        self._commands = Commands(http, sandbox_id)

    def create(
        self,
        *,
        cols: int = 80,
        rows: int = 24,
        on_data: OnData | None = None,
        command: Command = DEFAULT_SHELL,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        tag: str | None = None,
        timeout_seconds: int | None = None,
        idempotency_key: str | None = None,
        timeout_ms: float | None = None,
    ) -> Terminal:
        """Starts a shell, bash where there is one, or another command in a terminal of its own. `on_data` gets the
        bytes that it shows."""
        process = self._commands.start(
            command,
            cwd=cwd,
            env=env,
            user=user,
            tag=tag,
            timeout_seconds=timeout_seconds,
            pty={"cols": cols, "rows": rows},
            idempotency_key=idempotency_key,
            timeout_ms=timeout_ms,
        )
        return Terminal(self._http, process, on_data)

    def connect(
        self, id: str, *, after: int = 0, on_data: OnData | None = None, timeout_ms: float | None = None
    ) -> Terminal:
        """Attaches to a terminal that runs; several may. All output that is kept comes again, but for `after` bytes."""
        return Terminal(self._http, self._commands.connect(id, timeout_ms=timeout_ms), on_data, after)
