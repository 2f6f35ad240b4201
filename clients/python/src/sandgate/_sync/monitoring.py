from __future__ import annotations

import json
from collections.abc import Generator, Callable
from datetime import datetime, timezone
from time import monotonic
from typing import Any, Generic, TypeVar

import httpx

from .._protocol import (
    MAX_RETRIES,
    PAGE_SIZE,
    STEADY_SECONDS,
    Moment,
    Position,
    Request,
    SeenRows,
    Stop,
    fill_path,
    given,
    may_lack_rows,
    previous_page,
    to_moment,
)
from ..errors import ConnectionFailed
from ..records import LogEntry, MetricPoint, Monitoring
from .http import Http, read_events
from .runtime import Background, sleep

Row = TypeVar("Row", LogEntry, MetricPoint)
#: How often it is asked whether the sandbox has ended, while nothing comes.
QUIET_SECONDS = 2.0
OVER = ("stopped", "failed")


class Readings(Generic[Row]):
    """The logs or the samples of a sandbox, oldest first."""

    def __init__(
        self,
        http: Http,
        sandbox_id: str,
        kind: type[Row],
        *,
        state: Callable[[], str],
        stream: str | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        self._http = http
        self._kind: type[Row] = kind
        self._state = state
        self._path = fill_path("/sandbox/monitoring/{id}", id=sandbox_id)
        self._query = given(include="logs" if kind is LogEntry else "metrics", stream=stream)
        self._timeout_ms = timeout_ms
        self._row_count = 0

    def window(
        self, since: Moment | None, until: Moment | None = None, limit: int | None = None
    ) -> Generator[Row, None, None]:
        """The API gives the newest rows of a window, so pages are read backwards."""
        pages: list[list[Row]] = []
        end = to_moment(until)
        left = limit
        while True:
            size = PAGE_SIZE if left is None else min(left, PAGE_SIZE)
            query = {**self._query, **given(since=to_moment(since), until=end, limit=size)}
            answer = self._http.call(Request("GET", self._path, query, timeout_ms=self._timeout_ms), Monitoring)
            rows: Any = answer[self._query["include"]]
            if len(rows) == left or (len(rows) < size and not may_lack_rows(rows)):
                pages.append(rows)
                break
            rows, end = previous_page(rows)
            pages.append(rows)
            if left is not None:
                left -= len(rows)
        for page in reversed(pages):
            for row in page:
                yield row

    def follow(self, since: Moment | None, limit: int | None = None) -> Generator[Row, None, None]:
        """Rows from `since` on, and then those that come until the sandbox has ended, each once. The stream is open
        before the rows before it are read, and goes on after its last id where it broke off. `limit` counts
        only rows that are there at the start."""
        seen = SeenRows()
        ended = Stop()
        watching = Background(lambda stop: self._watch_for_end(stop, ended))
        last_id: str | None = None
        failures = 0
        state = self._state()
        since = since or datetime.now(timezone.utc)
        try:
            while state not in OVER and not ended.is_set:
                # The stream of one that is about to end is over, its output isn't.
                if state == "stopping":
                    sleep(QUIET_SECONDS)
                elif failures > MAX_RETRIES:
                    raise ConnectionFailed("A stream broke off again and again.")
                else:
                    failures += 1
                    opened_at = monotonic()
                    response = self._open(last_id)
                    try:
                        if last_id is None:
                            seen.start_over()
                            for row in self.window(since, limit=limit):
                                since = row.timestamp
                                if seen.add(row):
                                    yield row
                            seen.start_over()
                            limit = None
                        for event in read_events(response, ended):
                            last_id = event.id or last_id
                            if isinstance(event, Position):
                                continue
                            # The credential's or the membership's end is told when it is opened again.
                            if event.event == "end":
                                break
                            row = self._kind(json.loads(event.data))
                            failures = 0
                            self._row_count += 1
                            since = row.timestamp
                            if seen.add(row):
                                yield row
                    except httpx.TransportError:
                        # It is opened again.
                        pass
                    finally:
                        response.close()
                    if monotonic() - opened_at > STEADY_SECONDS:
                        failures = 0
                state = self._state()
        finally:
            watching.stop()
        # The last rows may come late.
        if not ended.is_set:
            sleep(QUIET_SECONDS)
        seen.start_over()
        for row in self.window(since, limit=limit):
            if seen.add(row):
                yield row

    def _open(self, last_id: str | None) -> httpx.Response:
        headers = {"accept": "text/event-stream", **given(**{"last-event-id": last_id})}
        return self._http.open(Request("GET", f"{self._path}/stream", self._query, headers=headers))

    def _watch_for_end(self, stop: Stop, ended: Stop) -> None:
        """Ends the stream once the sandbox has ended and nothing has come for a while."""
        has_stopped = False
        try:
            while not stop.is_set:
                before = self._row_count
                sleep(QUIET_SECONDS)
                if stop.is_set or self._row_count != before:
                    continue
                if has_stopped:
                    return
                has_stopped = self._state() in OVER
        finally:
            # A failure ends it too, and is raised there.
            ended.set()
