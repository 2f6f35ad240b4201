from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Generator, Iterator, Callable
from contextlib import ExitStack
from typing import Any, Literal, overload

import httpx

from .._local import CHUNK_BYTES, can_be_read_again, open_local, pack_folder, unpack_folder, write_local
from .._protocol import Event, FileChange, Request, Stat, Stop, fill_path, given, range_header, to_bytes, to_mode
from ..errors import NotFound
from ..records import Entry
from .http import Http, read_chunks
from .runtime import Background, Content, chunks_of, to_thread

#: Permission bits: `0o644` or `"0644"`.
Mode = int | str
Entries = list[Entry]
LocalPath = str | os.PathLike[str]
TRANSFER_SECONDS = 150.0


class Watch(Background):
    """Tells of changes until `stop`. `wait` raises what ended it before."""


class Files:
    """The files of a sandbox, with the rights of its user. A relative path starts at the image's folder."""

    def __init__(self, http: Http, sandbox_id: str) -> None:
        self._http = http
        self._path = fill_path("/sandboxes/{sandbox}/files", sandbox=sandbox_id)

    @overload
    def read(
        self,
        path: str,
        *,
        format: Literal["text"] = "text",
        offset: int | None = None,
        length: int | None = None,
        timeout_ms: float | None = None,
    ) -> str: ...

    @overload
    def read(
        self,
        path: str,
        *,
        format: Literal["bytes"],
        offset: int | None = None,
        length: int | None = None,
        timeout_ms: float | None = None,
    ) -> bytes: ...

    @overload
    def read(
        self,
        path: str,
        *,
        format: Literal["stream"],
        offset: int | None = None,
        length: int | None = None,
        timeout_ms: float | None = None,
    ) -> Iterator[bytes]: ...

    def read(
        self,
        path: str,
        *,
        format: Literal["text", "bytes", "stream"] = "text",
        offset: int | None = None,
        length: int | None = None,
        timeout_ms: float | None = None,
    ) -> str | bytes | Iterator[bytes]:
        """Reads a file, or `length` bytes of it from `offset` on. Part of a file is never taken for the whole: a stream
        that breaks off raises ConnectionFailed."""
        if length == 0:
            # A range of HTTP has a byte at least.
            self.stat(path, follow=True, timeout_ms=timeout_ms)
            if format == "stream":
                return read_chunks(httpx.Response(200))
            return b"" if format == "bytes" else ""
        headers = range_header(offset, length)
        request = self._request("GET", "", {"path": path}, headers=headers, timeout_ms=timeout_ms)
        if format == "stream":
            return read_chunks(self._http.open(request))
        content = (self._http.read(request)).content
        return content if format == "bytes" else content.decode("utf-8", "replace")

    def write(
        self,
        path: str,
        content: Content,
        *,
        mode: Mode | None = None,
        parents: bool | None = None,
        if_match: str | None = None,
        is_new: bool = False,
        timeout_ms: float | None = None,
    ) -> Entry:
        """Writes a file, which others see whole or not at all. `parents` makes the folders that are missing, `if_match`
        writes only what has not changed since, by its `etag`, and `is_new` only what isn't there yet."""
        headers = given(**{"if-match": if_match, "if-none-match": "*" if is_new else None})
        query = given(path=path, mode=to_mode(mode), parents=parents)
        # The condition may no longer hold after a try whose answer was lost.
        request = self._request("PUT", "", query, headers=headers, repeatable=not headers, timeout_ms=timeout_ms)
        set_content(request, content)
        return self._http.call(request, Entry)

    def upload(
        self,
        local_path: LocalPath,
        path: str,
        *,
        mode: Mode | None = None,
        parents: bool | None = None,
        timeout_ms: float | None = None,
    ) -> Entry:
        """Writes a file from a local one, or all that is in a local folder into a folder, which is made if it is
        missing."""
        if to_thread(os.path.isdir, local_path):
            entry = self.make_dir(path, parents=True, mode=mode)
            with to_thread(pack_folder, local_path) as packed:
                self.write_archive(path, packed, timeout_ms=timeout_ms)
            return entry
        query = given(path=path, mode=to_mode(mode), parents=parents)
        request = self._request("PUT", "", query, timeout_ms=timeout_ms)
        # Its length isn't said, since it may grow meanwhile.
        request.content = lambda: read_local(local_path)
        request.is_once = not to_thread(can_be_read_again, local_path)
        return self._http.call(request, Entry)

    def download(self, path: str, local_path: LocalPath, *, timeout_ms: float | None = None) -> int:
        """Reads a file into a local one, which is there whole or not at all, or all that is in a folder into a local
        folder. Returns the size in bytes. Links in a folder are left out, with a warning."""
        if (self.stat(path, follow=True)).type == "directory":
            with to_thread(tempfile.TemporaryFile) as packed:
                for chunk in self.read_archive(path, timeout_ms=timeout_ms):
                    to_thread(packed.write, chunk)
                packed.seek(0)
                return to_thread(unpack_folder, packed, local_path)
        size = 0
        with ExitStack() as stack:
            # First, since an answer that nobody reads keeps its connection.
            file = to_thread(stack.enter_context, write_local(local_path))
            for chunk in self.read(path, format="stream", timeout_ms=timeout_ms):
                size += to_thread(file.write, chunk)
        return size

    def list(self, path: str, *, depth: int | None = None, timeout_ms: float | None = None) -> Entries:
        """What is in a folder; with a `depth` above 1 also in the folders in it."""
        query = given(path=path, depth=depth, limit=1000)
        pages = self._http.pages(
            f"{self._path}/entries", "entries", Entry, query, attempt_seconds=TRANSFER_SECONDS, timeout_ms=timeout_ms
        )
        return [entry for entry in pages]

    def stat(self, path: str, *, follow: bool | None = None, timeout_ms: float | None = None) -> Stat:
        """Describes a file or folder, with its `etag`; through a link its target with `follow`."""
        request = self._request("GET", "/entry", given(path=path, follow=follow), timeout_ms=timeout_ms)
        response = self._http.read(request)
        return Stat(json.loads(response.content), etag=response.headers.get("etag"))

    def exists(self, path: str, *, timeout_ms: float | None = None) -> bool:
        try:
            self.stat(path, timeout_ms=timeout_ms)
        except NotFound:
            return False
        return True

    def remove(
        self,
        path: str,
        *,
        recursive: bool | None = None,
        if_match: str | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Removes a file, a link itself, an empty folder, or with `recursive` a folder with all that is in it."""
        headers = given(**{"if-match": if_match})
        query = given(path=path, recursive=recursive)
        self._http.read(self._request("DELETE", "", query, headers=headers, timeout_ms=timeout_ms))

    def rename(
        self, source: str, target: str, *, overwrite: bool | None = None, timeout_ms: float | None = None
    ) -> Entry:
        """Moves a file or folder; over something only with `overwrite`."""
        body = {"from": source, "to": target, **given(overwrite=overwrite)}
        return self._http.call(self._request("POST", "/move", json=body, timeout_ms=timeout_ms), Entry)

    def make_dir(
        self, path: str, *, parents: bool | None = None, mode: Mode | None = None, timeout_ms: float | None = None
    ) -> Entry:
        """Makes a folder; with `parents` also those above it, and one that is there is no error."""
        body = given(path=path, parents=parents, mode=to_mode(mode))
        request = self._request("POST", "/directories", json=body, repeatable=parents is True, timeout_ms=timeout_ms)
        return self._http.call(request, Entry)

    def chmod(self, path: str, mode: Mode, *, timeout_ms: float | None = None) -> Entry:
        """Sets the permission bits of a file or folder; through a link those of its target."""
        body = {"mode": to_mode(mode)}
        return self._http.call(
            self._request("PATCH", "", {"path": path}, json=body, timeout_ms=timeout_ms), Entry
        )

    def read_archive(self, path: str, *, timeout_ms: float | None = None) -> Iterator[bytes]:
        """Reads a folder, or a file, as a tar archive. One that breaks off raises ConnectionFailed."""
        return read_chunks(
            self._http.open(self._request("GET", "/archive", {"path": path}, timeout_ms=timeout_ms))
        )

    def write_archive(
        self, path: str, content: Content, *, gzip: bool = False, timeout_ms: float | None = None
    ) -> None:
        """Unpacks a tar archive into a folder."""
        headers = {"content-encoding": "gzip"} if gzip else {}
        request = self._request("PUT", "/archive", {"path": path}, headers=headers, timeout_ms=timeout_ms)
        set_content(request, content)
        self._http.read(request)

    def watch(
        self, path: str, on_event: Callable[[FileChange], object], *, recursive: bool | None = None
    ) -> Watch:
        """Tells of changes of a file or of what is in a folder, from when it returns until `stop`. Where the connection
        broke off meanwhile changes may be lost, which an `overflow` says. An `on_event` that raises ends it."""
        stop = Stop()
        query = given(path=path, recursive=recursive)
        headers = {"accept": "text/event-stream"}

        def open_stream(_: str | None) -> Request:
            return Request("GET", f"{self._path}/watch", query, headers=headers)

        events = self._http.follow(open_stream, stop)

        def tell(events: Generator[Event, None, None]) -> None:
            for event in events:
                if stop.is_set:
                    return
                if event.event == "ready":
                    on_event(FileChange(type="overflow", path=None, to=None))
                elif event.event != "end":
                    on_event(FileChange(json.loads(event.data)))

        # The first one says that it has begun.
        next(events)
        return Watch(lambda _: tell(events), stop)

    def _request(self, method: str, path: str, query: dict[str, Any] | None = None, **rest: Any) -> Request:
        return Request(method, self._path + path, query or {}, attempt_seconds=TRANSFER_SECONDS, **rest)


def set_content(request: Request, content: Content) -> None:
    if isinstance(content, (str, bytes)):
        request.content = to_bytes(content)
    else:
        request.content = lambda: chunks_of(content)
        request.is_once = True


def read_local(path: LocalPath) -> Generator[bytes, None, None]:
    with to_thread(open_local, path) as file:
        while chunk := to_thread(file.read, CHUNK_BYTES):
            yield chunk
