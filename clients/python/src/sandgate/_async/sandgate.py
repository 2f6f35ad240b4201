from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from .._protocol import Record, Request, fill_path, given, new_key
from .http import AsyncHttp


class Listed:
    """What the API lists. `{workspace}` in its path is the client's."""

    def __init__(self, http: AsyncHttp, path: str, items: str) -> None:
        self._http = http
        self._template = path
        self._items = items

    async def list(self, **query: Any) -> AsyncGenerator[Record, None]:
        """All of it, read page by page; what narrows it has the API's names."""
        async for item in self._http.pages(await self._path(), self._items, {"limit": 100, **query}):
            yield item

    async def _path(self, id: str | None = None) -> str:
        needs_workspace = "{workspace}" in self._template
        path = fill_path(self._template, workspace=await self._http.workspace_id() if needs_workspace else "")
        return path if id is None else path + fill_path("/{id}", id=id)


class Deletable(Listed):
    async def create(self, *, idempotency_key: str | None = None, **fields: Any) -> Any:
        """Makes one, of the API's fields."""
        key = idempotency_key or new_key()
        return await self._http.call(Request("POST", await self._path(), json=fields, idempotency_key=key))

    async def delete(self, id: str) -> None:
        await self._http.call(Request("DELETE", await self._path(id)))


class Updatable(Deletable):
    async def update(self, id: str, **fields: Any) -> Any:
        """Changes the fields that are given."""
        return await self._http.call(Request("PUT", await self._path(id), json=fields))


class Resource(Updatable):
    async def get(self, id: str) -> Any:
        return await self._http.call(Request("GET", await self._path(id)))


class Account:
    """The caller's account."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def get(self) -> Any:
        """Who the caller is, and what the credential allows."""
        return await self._http.call(Request("GET", "/auth/account"))

    async def delete(self, *, password: str | None = None) -> None:
        """Deletes the account, for which a session is needed."""
        await self._http.call(Request("DELETE", "/auth/account", json=given(password=password)))


class AsyncSandgate:
    """A client of one platform, for one workspace."""

    def __init__(self, *, url: str | None = None, token: str | None = None, workspace: str | None = None) -> None:
        http = self._http = AsyncHttp(url, token, workspace)
        self.images = Resource(http, "/sandbox-images", "images")
        self.registries = Resource(http, "/registries", "registries")
        self.workspaces = Resource(http, "/workspaces", "workspaces")
        self.members = Updatable(http, "/workspaces/{workspace}/members", "members")
        self.api_tokens = Deletable(http, "/api-tokens", "api_tokens")
        self.audit_log = Listed(http, "/workspaces/{workspace}/audit-log", "entries")
        self.account = Account(http)

    async def __aenter__(self) -> AsyncSandgate:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the client's connections."""
        await self._http.close()

    async def workspace_id(self) -> str:
        """The id of the workspace that this client uses."""
        return await self._http.workspace_id()
