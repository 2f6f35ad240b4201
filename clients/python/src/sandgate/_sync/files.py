from __future__ import annotations

from typing import Any, Literal, overload

from .._protocol import TRANSFER_SECONDS, Record, Request, fill_path, given, parse_json, to_bytes, to_mode
from ..errors import NotFound
from .http import Http

Mode = int | str


class Files:
    """The files of a sandbox, with the rights of its user. A relative path starts at the image's folder."""

    def __init__(self, http: Http, sandbox_id: str) -> None:
        self._http = http
        self._path = fill_path("/sandboxes/{sandbox}/files", sandbox=sandbox_id)

    @overload
    def read(
        self, path: str, *, format: Literal["text"] = "text", offset: int | None = None, length: int | None = None
    ) -> str: ...

    @overload
    def read(
        self, path: str, *, format: Literal["bytes"], offset: int | None = None, length: int | None = None
    ) -> bytes: ...

    def read(
        self,
        path: str,
        *,
        format: Literal["text", "bytes"] = "text",
        offset: int | None = None,
        length: int | None = None,
    ) -> str | bytes:
        """Reads a file, or `length` bytes of it from `offset` on."""
        headers: dict[str, str] = {}
        if offset is not None or length is not None:
            first = offset or 0
            headers["range"] = f"bytes={first}-{'' if length is None else first + length - 1}"
        content = (self._http.read(self._request("GET", "", {"path": path}, headers=headers))).content
        return content if format == "bytes" else content.decode("utf-8", "replace")

    def write(
        self,
        path: str,
        content: str | bytes,
        *,
        mode: Mode | None = None,
        parents: bool | None = None,
        if_match: str | None = None,
        is_new: bool = False,
    ) -> Record:
        """Writes a file, which others see whole or not at all. `parents` makes the folders that are missing, `if_match`
        writes only what has not changed since, by its `etag`, and `is_new` only what isn't there yet."""
        headers = given(**{"if-match": if_match, "if-none-match": "*" if is_new else None})
        query = given(path=path, mode=to_mode(mode), parents=parents)
        # The condition may no longer hold after a try whose answer was lost.
        request = self._request("PUT", "", query, headers=headers, repeatable=not headers)
        request.content = to_bytes(content)
        return self._call(request)

    def list(self, path: str, *, depth: int | None = None) -> list[Record]:
        """What is in a folder; with a `depth` above 1 also in the folders in it."""
        query = given(path=path, depth=depth, limit=1000)
        return [entry for entry in self._http.pages(f"{self._path}/entries", "entries", query)]

    def stat(self, path: str, *, follow: bool | None = None) -> Record:
        """Describes a file or folder, with its `etag`; through a link its target with `follow`."""
        response = self._http.read(self._request("GET", "/entry", given(path=path, follow=follow)))
        return Record(parse_json(response.content), etag=response.headers.get("etag"))

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except NotFound:
            return False
        return True

    def remove(self, path: str, *, recursive: bool | None = None) -> None:
        """Removes a file, a link itself, an empty folder, or a folder with all that is in it."""
        self._call(self._request("DELETE", "", given(path=path, recursive=recursive)))

    def rename(self, source: str, target: str, *, overwrite: bool | None = None) -> Record:
        """Moves a file or folder; over something only with `overwrite`."""
        body = {"from": source, "to": target, **given(overwrite=overwrite)}
        return self._call(self._request("POST", "/move", json=body))

    def make_dir(self, path: str, *, parents: bool | None = None, mode: Mode | None = None) -> Record:
        """Makes a folder; with `parents` also those above it, and one that is there is no error."""
        body = given(path=path, parents=parents, mode=to_mode(mode))
        return self._call(self._request("POST", "/directories", json=body, repeatable=parents is True))

    def chmod(self, path: str, mode: Mode) -> Record:
        """Sets the permission bits of a file or folder; through a link those of its target."""
        return self._call(self._request("PATCH", "", {"path": path}, json={"mode": to_mode(mode)}))

    def _request(self, method: str, path: str, query: dict[str, Any] | None = None, **rest: Any) -> Request:
        return Request(method, self._path + path, query or {}, attempt_seconds=TRANSFER_SECONDS, **rest)

    def _call(self, request: Request) -> Record:
        return Record(self._http.call(request) or {})
