from __future__ import annotations

from typing import Any

from .._protocol import Record, Request, fill_path, given, new_key
from .http import AsyncHttp


class Ports:
    """The ports of a sandbox."""

    def __init__(self, http: AsyncHttp, sandbox_id: str) -> None:
        self._http = http
        self._path = fill_path("/sandboxes/{sandbox}/ports", sandbox=sandbox_id)

    async def open(
        self, port: int, *, public: bool | None = None, ttl_seconds: int | None = None, host_header: str | None = None
    ) -> Any:
        """Opens a preview of a port. Its `token`, sent as X-Sandgate-Token, is shown this once."""
        body = given(port=port, public=public, ttl_seconds=ttl_seconds, host_header=host_header)
        return await self._http.call(Request("POST", self._path, json=body, idempotency_key=new_key()))

    async def list(self) -> list[Record]:
        """The previews that are open."""
        return [*(await self._http.call(Request("GET", self._path))).previews]

    async def close(self, id: str) -> None:
        """Ends a preview."""
        await self._http.call(Request("DELETE", fill_path(self._path + "/{id}", id=id)))

    async def link(self, id: str, *, ttl_seconds: int | None = None) -> Any:
        """An address that opens a preview in a browser, once."""
        path = fill_path(self._path + "/{id}/links", id=id)
        return await self._http.call(Request("POST", path, json=given(ttl_seconds=ttl_seconds), repeatable=True))
