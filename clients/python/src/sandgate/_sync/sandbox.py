from __future__ import annotations

from collections.abc import Generator, Callable, Mapping, Sequence
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import httpx

from .._protocol import (
    UNDO_MS,
    WAIT_GRACE_SECONDS,
    WAIT_SECONDS,
    Moment,
    Request,
    fill_path,
    given,
    may_be_made,
    new_key,
)
from ..errors import ProvisioningFailed, SandboxNotReady, SandgateError, TimedOut
from ..records import LogEntry, MetricPoint, SandboxRecord, SandboxState
from .commands import Commands
from .files import Files
from .http import Http, ClientOptions
from .monitoring import Readings
from .ports import Ports
from .runtime import Rows, sleep
from .terminals import Terminals

if TYPE_CHECKING:
    from typing_extensions import Unpack

READY_MS = 300_000


class ProvisionOptions(TypedDict, total=False):
    """What a sandbox is made with."""

    #: Made up by default.
    name: str | None
    labels: Mapping[str, str] | None
    #: Environment variables besides the image's.
    env: Mapping[str, str] | None
    #: The program and its arguments instead of the image's.
    command: Sequence[str] | None
    #: Seconds until it ends: the image's by default, and at most that.
    ttl_seconds: int | None
    #: Seconds without use until it ends; never by default.
    idle_timeout_seconds: int | None
    #: A creation with a key that was used before gives what was created then. A new one by default.
    idempotency_key: str | None


class Sandbox:
    """A sandbox. It is stopped at the end of a `with` block."""

    def __init__(self, http: Http, record: SandboxRecord, owns_http: bool = False) -> None:
        self._http = http
        self._owns_http = owns_http
        self.id = record.id
        #: What was last known of it.
        self.record = record
        self.commands = Commands(http, self.id)
        self.files = Files(http, self.id)
        #: Terminals.
        self.pty = Terminals(http, self.id)
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
        on_progress: Callable[[SandboxRecord], object] | None = None,
        idempotency_key: str | None = None,
        **client: Unpack[ClientOptions],
    ) -> Sandbox:
        """Makes a sandbox from an image, by its name or id, and waits until it is ready, 5 minutes by default. One that
        isn't ready in time is stopped. `on_progress` is told of each change of the record meanwhile."""
        http = Http(**client)
        try:
            sandbox = Sandboxes(http).create(
                image,
                name=name,
                labels=labels,
                env=env,
                command=command,
                ttl_seconds=ttl_seconds,
                idle_timeout_seconds=idle_timeout_seconds,
                timeout_ms=timeout_ms,
                on_progress=on_progress,
                idempotency_key=idempotency_key,
            )
        except BaseException:
            http.close()
            raise
        sandbox._owns_http = True
        return sandbox

    @classmethod
    def connect(
        cls, id_or_name: str, *, timeout_ms: float | None = None, **client: Unpack[ClientOptions]
    ) -> Sandbox:
        """Finds a sandbox by its id or name."""
        http = Http(**client)
        try:
            sandbox = Sandboxes(http).get(id_or_name, timeout_ms=timeout_ms)
        except BaseException:
            http.close()
            raise
        sandbox._owns_http = True
        return sandbox

    @classmethod
    def list(
        cls,
        *,
        state: SandboxState | Sequence[SandboxState] | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
        timeout_ms: float | None = None,
        **client: Unpack[ClientOptions],
    ) -> Generator[Sandbox, None, None]:
        """The sandboxes of the workspace, newest first. `name` is what the name begins with, `limit` how many there are
        on a page."""
        return Sandboxes(Http(**client)).list(
            state=state, name=name, labels=labels, limit=limit, timeout_ms=timeout_ms
        )

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self.close()

    def close(self) -> None:
        """Closes the connections that `create` or `connect` opened. The sandbox lives on."""
        if self._owns_http:
            self._http.close()

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def state(self) -> SandboxState:
        return self.record.state

    def refresh(self, *, timeout_ms: float | None = None) -> SandboxRecord:
        self.record = self._http.call(Request("GET", self._path, timeout_ms=timeout_ms), SandboxRecord)
        return self.record

    def wait_until_ready(
        self, *, timeout_ms: float = READY_MS, on_progress: Callable[[SandboxRecord], object] | None = None
    ) -> SandboxRecord:
        """Waits until it is ready, 5 minutes by default. Raises ProvisioningFailed when it has failed, Conflict when it
        was stopped, and TimedOut when it isn't ready in time."""
        deadline = monotonic() + timeout_ms / 1000
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
                self.record = self._http.call(request, SandboxRecord)
            except SandboxNotReady:
                self.refresh()
            else:
                if on_progress is not None:
                    on_progress(self.record)
                return self.record
            now = (self.record.timeline, self.record.pull, self.state)
            if on_progress is not None and now != last:
                on_progress(self.record)
            last = now
            sleep(0.1)

    def extend(
        self, ttl_seconds: int, *, shorten: bool | None = None, timeout_ms: float | None = None
    ) -> SandboxRecord:
        """Lets it live for so many seconds from now; never shorter than before unless `shorten` allows that."""
        body = given(ttl_seconds=ttl_seconds, shorten=shorten)
        request = Request("POST", f"{self._path}/extend", json=body, repeatable=True, timeout_ms=timeout_ms)
        self.record = self._http.call(request, SandboxRecord)
        return self.record

    def stop(self, *, timeout_ms: float | None = None) -> None:
        """Stops it, in whatever state it is."""
        self._http.read(Request("DELETE", self._path, timeout_ms=timeout_ms))

    @overload
    def logs(
        self,
        *,
        follow: Literal[True],
        since: Moment | None = None,
        limit: int | None = None,
        stream: Literal["stdout", "stderr"] | None = None,
    ) -> Generator[LogEntry, None, None]: ...

    @overload
    def logs(
        self,
        *,
        follow: Literal[False] = False,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = None,
        stream: Literal["stdout", "stderr"] | None = None,
        timeout_ms: float | None = None,
    ) -> Rows[LogEntry]: ...

    def logs(
        self,
        *,
        follow: bool = False,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = None,
        stream: Literal["stdout", "stderr"] | None = None,
        timeout_ms: float | None = None,
    ) -> Generator[LogEntry, None, None] | Rows[LogEntry]:
        """Its log lines, oldest first, from `since` (one hour ago) to `until` (now, exclusive), the newest `limit` of
        them, or all. With `follow` those from its start on, or from `since`, and then those that come until it has
        ended, each once."""
        readings = Readings(self._http, self.id, LogEntry, state=self._ask_state, stream=stream, timeout_ms=timeout_ms)
        if follow:
            return readings.follow(since or self.record.created_at, limit)
        return Rows(readings.window(since, until, limit))

    @overload
    def metrics(
        self, *, follow: Literal[True], since: Moment | None = None, limit: int | None = None
    ) -> Generator[MetricPoint, None, None]: ...

    @overload
    def metrics(
        self,
        *,
        follow: Literal[False] = False,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = None,
        timeout_ms: float | None = None,
    ) -> Rows[MetricPoint]: ...

    def metrics(
        self,
        *,
        follow: bool = False,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = None,
        timeout_ms: float | None = None,
    ) -> Generator[MetricPoint, None, None] | Rows[MetricPoint]:
        """Its samples of CPU and memory, oldest first, as `logs` gives its lines; with `follow` from now on, or from
        `since`."""
        readings = Readings(self._http, self.id, MetricPoint, state=self._ask_state, timeout_ms=timeout_ms)
        return readings.follow(since, limit) if follow else Rows(readings.window(since, until, limit))

    def _ask_state(self) -> SandboxState:
        return (self.refresh()).state

    def fetch(
        self,
        port: int,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        content: str | bytes | None = None,
        json: Any = None,
        timeout_ms: float = 30_000,
    ) -> httpx.Response:
        """Sends an HTTP request to a server on one of its ports, with the client's credential, and no preview needed.
        What the server answers is returned as it is, errors and redirects too; it may be silent for `timeout_ms`.
        Raises BadSettings for a path that leads out of the port, such as `/../x`."""
        start = fill_path("/sandboxes/{id}/ports/{port}/http", id=self.id, port=port)
        sent = given(params=params, content=content, json=json)
        return self._http.fetch_port(start, path, headers, method=method, timeout=timeout_ms / 1000, **sent)


class Sandboxes:
    """The sandboxes of a workspace."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(
        self,
        *,
        state: SandboxState | Sequence[SandboxState] | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
        timeout_ms: float | None = None,
    ) -> Generator[Sandbox, None, None]:
        """Newest first. `name` is what the name begins with, `limit` how many there are on a page."""
        states = state if state is None or isinstance(state, str) else ",".join(state)
        query = given(state=states, name=name, limit=limit)
        query["label"] = [f"{key}:{value}" for key, value in (labels or {}).items()]
        for record in self._http.pages("/sandboxes", "sandboxes", SandboxRecord, query, timeout_ms=timeout_ms):
            yield Sandbox(self._http, record)

    def get(self, id_or_name: str, *, timeout_ms: float | None = None) -> Sandbox:
        """By its id or name."""
        request = Request("GET", fill_path("/sandboxes/{id}", id=id_or_name), timeout_ms=timeout_ms)
        return Sandbox(self._http, self._http.call(request, SandboxRecord))

    def provision(
        self,
        image: str,
        *,
        timeout_ms: float | None = None,
        **options: Unpack[ProvisionOptions],
    ) -> Sandbox:
        """Makes one without waiting until it is ready."""
        body = given(image=image, **options)
        key = body.pop("idempotency_key", None) or new_key()
        request = Request("POST", "/sandboxes/provision", json=body, idempotency_key=key, timeout_ms=timeout_ms)
        return Sandbox(self._http, self._http.call(request, SandboxRecord))

    def create(
        self,
        image: str,
        *,
        timeout_ms: float = READY_MS,
        on_progress: Callable[[SandboxRecord], object] | None = None,
        **options: Unpack[ProvisionOptions],
    ) -> Sandbox:
        """Makes one, of what `provision` takes, and waits until it is ready, 5 minutes by default. One that isn't ready
        in time, or is cancelled, is stopped."""
        deadline = monotonic() + timeout_ms / 1000
        options["idempotency_key"] = options.get("idempotency_key") or new_key()
        sandbox = None
        try:
            sandbox = self.provision(image, timeout_ms=timeout_ms, **options)
            left = max(0.0, deadline - monotonic()) * 1000
            sandbox.wait_until_ready(timeout_ms=left, on_progress=on_progress)
            return sandbox
        except BaseException as error:
            # Nobody has a handle to it; one that failed has ended by itself.
            if not isinstance(error, ProvisioningFailed):
                try:
                    if sandbox is None and may_be_made(error):
                        sandbox = self.provision(image, timeout_ms=UNDO_MS, **options)
                    if sandbox is not None:
                        sandbox.stop(timeout_ms=UNDO_MS)
                except SandgateError:
                    # It is what failed first that is told.
                    pass
            raise
