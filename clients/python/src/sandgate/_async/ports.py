from __future__ import annotations

from .._protocol import Request, fill_path, given, new_key
from ..records import (
    CreatedPreview,
    HostHeader,
    ListeningPort,
    ListeningPortList,
    Preview,
    PreviewLink,
    PreviewList,
)
from .http import AsyncHttp

Previews = list[Preview]
Listening = list[ListeningPort]


class Ports:
    """The ports of a sandbox."""

    def __init__(self, http: AsyncHttp, sandbox_id: str) -> None:
        self._http = http
        self._sandbox = fill_path("/sandboxes/{sandbox}", sandbox=sandbox_id)
        self._path = f"{self._sandbox}/ports"

    async def open(
        self,
        port: int,
        *,
        public: bool | None = None,
        ttl_seconds: int | None = None,
        host_header: HostHeader | None = None,
        idempotency_key: str | None = None,
        timeout_ms: float | None = None,
    ) -> CreatedPreview:
        """Opens a preview of a port, for an hour unless `ttl_seconds` (60 to 86,400) says otherwise. Its `token`, sent
        as X-Sandgate-Token, is shown this once; a public one needs none."""
        body = given(port=port, public=public, ttl_seconds=ttl_seconds, host_header=host_header)
        request = Request("POST", self._path, json=body, timeout_ms=timeout_ms)
        request.idempotency_key = idempotency_key or new_key()
        return await self._http.call(request, CreatedPreview)

    async def list(self, *, timeout_ms: float | None = None) -> Previews:
        """The previews that are open."""
        return (await self._http.call(Request("GET", self._path, timeout_ms=timeout_ms), PreviewList)).previews

    async def get(self, id: str, *, timeout_ms: float | None = None) -> Preview:
        return await self._http.call(Request("GET", self._of(id), timeout_ms=timeout_ms), Preview)

    async def close(self, id: str, *, timeout_ms: float | None = None) -> None:
        """Ends a preview."""
        await self._http.read(Request("DELETE", self._of(id), timeout_ms=timeout_ms))

    async def link(self, id: str, *, ttl_seconds: int | None = None, timeout_ms: float | None = None) -> PreviewLink:
        """An address that opens a preview in a browser, once."""
        body = given(ttl_seconds=ttl_seconds)
        request = Request("POST", f"{self._of(id)}/links", json=body, repeatable=True, timeout_ms=timeout_ms)
        return await self._http.call(request, PreviewLink)

    async def listening(self, *, timeout_ms: float | None = None) -> Listening:
        """What listens in the sandbox."""
        request = Request("GET", f"{self._sandbox}/listening", timeout_ms=timeout_ms)
        return (await self._http.call(request, ListeningPortList)).ports

    def _of(self, id: str) -> str:
        return fill_path(self._path + "/{id}", id=id)
