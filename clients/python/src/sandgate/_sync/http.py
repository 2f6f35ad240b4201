from __future__ import annotations

from collections.abc import Generator, Callable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from time import monotonic
from typing import Any, TypedDict, TypeVar

import httpx

from .._protocol import (
    ATTEMPT_SECONDS,
    MAX_RETRIES,
    SILENT_SECONDS,
    STEADY_SECONDS,
    Event,
    EventParser,
    Position,
    Request,
    Stop,
    choose_workspace,
    find_workspace,
    is_uuid,
    parse_json,
    port_address,
    resolve_settings,
    retry_delay,
)
from .._record import Record
from ..errors import ConnectionFailed, SandgateError, TimedOut, read_error
from ..records import Workspace
from .runtime import TokenProvider, sleep

R = TypeVar("R", bound=Record)


class ClientOptions(TypedDict, total=False):
    """What every entry of the client takes. What is missing comes from the environment, else from `sandgate login`."""

    #: The address of the API; SANDGATE_URL. http://127.0.0.1:8080 by default.
    url: str | None
    #: An API token, an access token, or what gives them; SANDGATE_TOKEN.
    token: str | TokenProvider | None
    #: A workspace by id or name; SANDGATE_WORKSPACE. The personal one by default.
    workspace: str | None
    #: How long one try of a request may be silent, in milliseconds; 30 s by default.
    request_timeout_ms: float | None
    #: How often a request that may be repeated is tried again; 3 by default.
    max_retries: int


class Http:
    """Sends requests with the credential and workspace, and retries those that are safe to retry."""

    def __init__(
        self,
        url: str | None = None,
        token: str | TokenProvider | None = None,
        workspace: str | None = None,
        request_timeout_ms: float | None = None,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        self.settings = resolve_settings(url, token, workspace)
        self._attempt_seconds = ATTEMPT_SECONDS if request_timeout_ms is None else request_timeout_ms / 1000
        self._max_retries = max_retries
        # What a server in a sandbox sets is no cookie for the API. Streams are as many as the caller opens.
        self._client = httpx.Client(
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])), limits=httpx.Limits(max_connections=None)
        )
        self._workspace_id: str | None = None

    def close(self) -> None:
        self._client.close()

    def call(self, request: Request, kind: type[R]) -> R:
        """Calls the API and reads its JSON."""
        return kind(parse_json((self.read(request)).content))

    def read(self, request: Request) -> httpx.Response:
        """Sends a request and reads the whole answer."""
        return self._try_until_done(request, stream=False)

    def open(self, request: Request) -> httpx.Response:
        """Sends a request and gives its answer once it has begun; the caller closes it."""
        return self._try_until_done(request, stream=True)

    def _try_until_done(self, request: Request, stream: bool) -> httpx.Response:
        deadline = None if request.timeout_ms is None else monotonic() + request.timeout_ms / 1000
        is_unknown = False
        refused: str | None = None
        retries = 0
        while True:
            token = None if request.anonymous else self._token(refused)
            try:
                return self._try(request, token, stream, deadline)
            except SandgateError as error:
                if error.code == "invalid_token" and token is not None and refused is None and not request.is_once:
                    refused = token
                    if self._token(refused) != token:
                        continue
                    raise
                # An earlier try whose answer was lost has deleted it.
                if is_unknown and request.method == "DELETE" and error.status == 404:
                    return httpx.Response(204)
                wait = retry_delay(retries, error.retry_after)
                in_time = deadline is None or monotonic() + wait < deadline
                if retries >= self._max_retries or not in_time or not request.may_retry(error):
                    raise
                is_unknown = is_unknown or error.status == 0 or error.status >= 500
                sleep(wait)
                retries += 1

    def _token(self, refused: str | None = None) -> str | None:
        token: str | TokenProvider | None = self.settings.token
        return token(refused) if callable(token) else token

    def _try(self, request: Request, token: str | None, stream: bool, deadline: float | None) -> httpx.Response:
        has_workspace = not request.is_personal or "{workspace}" in request.path
        workspace = self.workspace_id() if has_workspace else None
        seconds = request.attempt_seconds or (SILENT_SECONDS if stream else self._attempt_seconds)
        if deadline is not None:
            seconds = max(0.001, min(seconds, deadline - monotonic()))
        url = self.settings.url
        try:
            sent = self._client.build_request(
                request.method,
                url + request.path.replace("{workspace}", workspace or ""),
                params=request.build_query(),
                headers=request.build_headers(token, None if request.is_personal else workspace),
                content=request.build_body(),
                timeout=seconds,
            )
            response = self._client.send(sent, stream=True)
            if not response.is_success or not stream:
                response = read_whole(response, deadline)
        except httpx.TimeoutException as error:
            raise TimedOut(f"{request.method} {request.path} was not answered in time.") from error
        except httpx.TransportError as error:
            message = f"{url} can't be reached, or broke the connection off."
            raise ConnectionFailed(message, "Check the address and whether the platform is running.") from error
        if not response.is_success:
            raise read_error(response.status_code, response.headers, response.content)
        return response

    def workspace_id(self) -> str:
        """The id of the workspace that this client uses. It is looked up once."""
        if self._workspace_id is None:
            name = self.settings.workspace
            if name is not None and is_uuid(name):
                self._workspace_id = name
            elif name is None:
                page = self.call(Request("GET", "/workspaces", {"limit": 1}), Record)
                self._workspace_id = choose_workspace(page["default_workspace_id"])
            else:
                own = [each for each in self.pages("/workspaces", "workspaces", Workspace, {"limit": 500})]
                self._workspace_id = find_workspace(own, name)
        return self._workspace_id

    def pages(
        self, path: str, items: str, kind: type[R], query: dict[str, Any], **rest: Any
    ) -> Generator[R, None, None]:
        """The items of a list, read page by page."""
        cursor = None
        while True:
            page = self.call(Request("GET", path, {**query, "cursor": cursor}, **rest), Record)
            for item in page[items]:
                yield kind(item)
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def follow(
        self, open_stream: Callable[[str | None], Request], stop: Stop | None = None, last_id: str | None = None
    ) -> Generator[Event, None, None]:
        """Events up to `exit`. A stream that breaks off is opened again after the last id that came."""
        stop = stop or Stop()
        failures = 0
        while not stop.is_set:
            opened_at = monotonic()
            response = self.open(open_stream(last_id))
            cause: Exception | None = None
            try:
                for event in read_events(response, stop):
                    last_id = event.id or last_id
                    if isinstance(event, Position):
                        continue
                    failures = 0
                    yield event
                    if event.event == "exit":
                        return
            except httpx.TransportError as error:
                cause = error
            finally:
                response.close()
            if stop.is_set:
                return
            failures = 1 if monotonic() - opened_at > STEADY_SECONDS else failures + 1
            if failures > MAX_RETRIES:
                raise ConnectionFailed("A stream broke off again and again.") from cause
            sleep(retry_delay(failures - 1))

    def fetch_port(self, port: str, path: str, headers: Mapping[str, str] | None, **sent: Any) -> httpx.Response:
        """Sends a request to a server in a sandbox, and gives what it answers."""
        address = port_address(self.settings.url + port, path)
        own = Request("", port).build_headers(self._token(), self.workspace_id())
        try:
            return self._client.request(
                url=address, headers={**(headers or {}), **own}, follow_redirects=False, **sent
            )
        except httpx.TimeoutException as error:
            raise TimedOut("The port did not answer in time.") from error
        except httpx.TransportError as error:
            raise ConnectionFailed("The connection to the port broke off.") from error


def read_whole(response: httpx.Response, deadline: float | None) -> httpx.Response:
    """The same answer with its whole body."""
    chunks = []
    try:
        for chunk in response.iter_raw():
            if deadline is not None and monotonic() > deadline:
                raise httpx.ReadTimeout("The whole answer did not come in time.")
            chunks.append(chunk)
    finally:
        response.close()
    return httpx.Response(response.status_code, headers=response.headers, content=b"".join(chunks))


def read_events(response: httpx.Response, stop: Stop) -> Generator[Event | Position, None, None]:
    """The events and positions of one stream, until it ends or is stopped."""
    stop.hold(response)
    parser = EventParser()
    for chunk in response.iter_bytes():
        for event in parser.feed(chunk):
            if stop.is_set:
                return
            yield event


def read_chunks(response: httpx.Response) -> Generator[bytes, None, None]:
    """The body of an answer as it comes. Raises ConnectionFailed when it breaks off."""
    try:
        for chunk in response.iter_bytes():
            yield chunk
    except httpx.TransportError as error:
        raise ConnectionFailed("The connection broke off before the answer was read.") from error
    finally:
        response.close()
