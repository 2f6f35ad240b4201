from __future__ import annotations

from time import sleep
from collections.abc import Generator, Callable
from time import monotonic
from typing import Any

import httpx

from .._protocol import (
    ATTEMPT_SECONDS,
    MAX_RETRIES,
    SILENT_SECONDS,
    Event,
    EventParser,
    Record,
    Request,
    choose_workspace,
    is_uuid,
    parse_json,
    resolve_settings,
    retry_delay,
)
from ..errors import ConnectionFailed, SandgateError, TimedOut, read_error


class Http:
    """Sends requests with the credential and workspace, and retries those that are safe to retry."""

    def __init__(self, url: str | None = None, token: str | None = None, workspace: str | None = None) -> None:
        self.settings = resolve_settings(url, token, workspace)
        self._client = httpx.Client()
        self._workspace_id: str | None = None

    def close(self) -> None:
        self._client.close()

    def call(self, request: Request) -> Any:
        """Calls the API and reads its JSON."""
        return parse_json((self.read(request)).content)

    def read(self, request: Request) -> httpx.Response:
        """Sends a request and reads the whole answer."""
        return self._try_until_done(request, stream=False)

    def open(self, request: Request) -> httpx.Response:
        """Sends a request and gives its answer once it has begun; the caller closes it."""
        return self._try_until_done(request, stream=True)

    def _try_until_done(self, request: Request, stream: bool) -> httpx.Response:
        deadline = None if request.timeout_ms is None else monotonic() + request.timeout_ms / 1000
        is_unknown = False
        retries = 0
        while True:
            try:
                return self._try(request, stream, deadline)
            except SandgateError as error:
                # An earlier try whose answer was lost has deleted it.
                if is_unknown and request.method == "DELETE" and error.status == 404:
                    return httpx.Response(204)
                wait = retry_delay(retries, error.retry_after)
                in_time = deadline is None or monotonic() + wait < deadline
                if retries >= MAX_RETRIES or not in_time or not request.may_retry(error):
                    raise
                is_unknown = is_unknown or error.status == 0 or error.status >= 500
                sleep(wait)
                retries += 1

    def _try(self, request: Request, stream: bool, deadline: float | None) -> httpx.Response:
        workspace = None if request.is_personal else self.workspace_id()
        seconds = request.attempt_seconds or (SILENT_SECONDS if stream else ATTEMPT_SECONDS)
        if deadline is not None:
            seconds = max(0.001, min(seconds, deadline - monotonic()))
        url = self.settings.url
        try:
            sent = self._client.build_request(
                request.method,
                f"{url}{request.path}",
                params=request.build_query(),
                headers=request.build_headers(self.settings.token, workspace),
                content=request.build_body(),
                timeout=seconds,
            )
            response = self._client.send(sent, stream=True)
            try:
                if not response.is_success or not stream:
                    response.read()
            finally:
                if not response.is_success or not stream:
                    response.close()
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
            else:
                own = [each for each in self.pages("/workspaces", "workspaces", {"limit": 500})]
                self._workspace_id = choose_workspace(own, name)
        return self._workspace_id

    def pages(self, path: str, items: str, query: dict[str, Any]) -> Generator[Record, None, None]:
        """The items of a list, read page by page."""
        cursor = None
        while True:
            page = self.call(Request("GET", path, query={**query, "cursor": cursor}))
            for item in page[items]:
                yield item
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def follow(
        self, open_stream: Callable[[str | None], Request], last_id: str | None = None
    ) -> Generator[Event, None, None]:
        """Events up to `exit`. A stream that breaks off is opened again after the last event that was handed on."""
        failures = 0
        while True:
            response = self.open(open_stream(last_id))
            parser = EventParser()
            cause: Exception | None = None
            try:
                for chunk in response.iter_bytes():
                    for event in parser.feed(chunk):
                        failures = 0
                        last_id = event.id or last_id
                        yield event
                        if event.event == "exit":
                            return
            except httpx.TransportError as error:
                cause = error
            finally:
                response.close()
            failures += 1
            if failures > MAX_RETRIES:
                raise ConnectionFailed("A stream broke off again and again.") from cause
            sleep(retry_delay(failures - 1))
