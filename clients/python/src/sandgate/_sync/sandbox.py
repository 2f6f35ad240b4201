from __future__ import annotations

from time import sleep
from collections.abc import Generator, Callable, Mapping, Sequence
from math import ceil
from time import monotonic
from typing import Any

from .._protocol import WAIT_GRACE_SECONDS, WAIT_SECONDS, Record, Request, fill_path, given, new_key
from ..errors import ProvisioningFailed, SandboxNotReady, SandgateError, TimedOut
from .commands import Commands
from .files import Files
from .http import Http
from .ports import Ports

READY_MS = 300_000


class Sandbox:
    """A sandbox. It is stopped at the end of a `with` block."""

    def __init__(self, http: Http, record: Record) -> None:
        self._http = http
        self.id: str = record.id
        #: What was last known of it.
        self.record = record
        self.commands = Commands(http, self.id)
        self.files = Files(http, self.id)
        self.ports = Ports(http, self.id)
        self._path = fill_path("/sandboxes/{id}", id=self.id)

    @classmethod
    def create(
        cls,
        image: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        ttl_seconds: int | None = None,
        idle_timeout_seconds: int | None = None,
        timeout_ms: float = READY_MS,
        on_progress: Callable[[Record], object] | None = None,
        idempotency_key: str | None = None,
        url: str | None = None,
        token: str | None = None,
        workspace: str | None = None,
    ) -> Sandbox:
        """Makes a sandbox from an image, by its name or id, and waits until it is ready, 5 minutes by default. One that
        isn't ready in time is stopped. `on_progress` is told of each change of the record meanwhile."""
        deadline = monotonic() + timeout_ms / 1000
        http = Http(url, token, workspace)
        body = given(image=image, name=name, labels=labels, env=env, command=command and list(command))
        body |= given(ttl_seconds=ttl_seconds, idle_timeout_seconds=idle_timeout_seconds)
        request = Request("POST", "/sandboxes/provision", json=body, timeout_ms=timeout_ms)
        request.idempotency_key = idempotency_key or new_key()
        sandbox: Sandbox | None = None
        try:
            sandbox = cls(http, http.call(request))
            sandbox._wait_until_ready(deadline, on_progress)
            return sandbox
        except BaseException as error:
            # Nobody has a handle to it; one that failed has ended by itself.
            if sandbox is not None and not isinstance(error, ProvisioningFailed):
                try:
                    http.call(Request("DELETE", sandbox._path, timeout_ms=10_000))
                except SandgateError:
                    # It is what failed first that is told.
                    pass
            http.close()
            raise

    @classmethod
    def connect(
        cls, id_or_name: str, *, url: str | None = None, token: str | None = None, workspace: str | None = None
    ) -> Sandbox:
        """Finds a sandbox by its id or name."""
        http = Http(url, token, workspace)
        try:
            return cls(http, http.call(Request("GET", fill_path("/sandboxes/{id}", id=id_or_name))))
        except BaseException:
            http.close()
            raise

    @classmethod
    def list(
        cls,
        *,
        state: str | Sequence[str] | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
        url: str | None = None,
        token: str | None = None,
        workspace: str | None = None,
    ) -> Generator[Sandbox, None, None]:
        """The sandboxes of the workspace, newest first; `limit` is how many there are on a page."""
        http = Http(url, token, workspace)
        states = state if state is None or isinstance(state, str) else ",".join(state)
        query = given(state=states, name=name, limit=limit)
        query["label"] = [f"{key}:{value}" for key, value in (labels or {}).items()]
        for record in http.pages("/sandboxes", "sandboxes", query):
            yield cls(http, record)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self.close()

    def close(self) -> None:
        """Closes the client's connections. The sandbox lives on."""
        self._http.close()

    @property
    def name(self) -> str:
        return str(self.record.name)

    @property
    def state(self) -> str:
        return str(self.record.state)

    def refresh(self) -> Record:
        self.record = self._http.call(Request("GET", self._path))
        return self.record

    def _wait_until_ready(self, deadline: float, on_progress: Callable[[Record], object] | None) -> None:
        last = None
        while True:
            left = deadline - monotonic()
            if left <= 0:
                raise TimedOut(f"The sandbox {self.name} was not ready in time.")
            # Who wants to be told of changes asks often.
            seconds = 1 if on_progress is not None else min(WAIT_SECONDS, ceil(left))
            body = {"sandbox_id": self.id, "timeout_seconds": seconds}
            request = Request("POST", "/sandboxes/wait", json=body, repeatable=True)
            request.final_codes = ("sandbox_not_ready", "provisioning_failed")
            request.attempt_seconds = seconds + WAIT_GRACE_SECONDS
            try:
                self.record = self._http.call(request)
            except SandboxNotReady:
                self.refresh()
            else:
                if on_progress is not None:
                    on_progress(self.record)
                return
            now = (self.record.get("timeline"), self.record.get("pull"), self.state)
            if on_progress is not None and now != last:
                on_progress(self.record)
            last = now
            sleep(0.1)

    def extend(self, ttl_seconds: int, *, shorten: bool | None = None) -> Record:
        """Lets it live for so many seconds from now; never shorter than before unless `shorten` allows that."""
        body = given(ttl_seconds=ttl_seconds, shorten=shorten)
        self.record = self._http.call(Request("POST", f"{self._path}/extend", json=body, repeatable=True))
        return self.record

    def stop(self) -> None:
        """Stops it, in whatever state it is."""
        self._http.call(Request("DELETE", self._path))

    def logs(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        limit: int = 10_000,
        stream: str | None = None,
    ) -> Any:
        """The newest of its log lines, oldest first: of the last hour by default, 10,000 at most."""
        return (self._rows("logs", since=since, until=until, limit=limit, stream=stream)).logs

    def metrics(self, *, since: str | None = None, until: str | None = None, limit: int = 10_000) -> Any:
        """The newest of its samples of CPU and memory, oldest first: of the last hour by default, 10,000 at most."""
        return (self._rows("metrics", since=since, until=until, limit=limit)).metrics

    def _rows(self, include: str, **query: Any) -> Any:
        path = fill_path("/sandbox/monitoring/{id}", id=self.id)
        return self._http.call(Request("GET", path, given(include=include, **query)))
