from __future__ import annotations

from collections.abc import Generator
from typing import Any

from .._protocol import Record, Request, fill_path, given, new_key
from .http import Http


class Listed:
    """What the API lists. `{workspace}` in its path is the client's."""

    def __init__(self, http: Http, path: str, items: str) -> None:
        self._http = http
        self._template = path
        self._items = items

    def list(self, **query: Any) -> Generator[Record, None, None]:
        """All of it, read page by page; what narrows it has the API's names."""
        for item in self._http.pages(self._path(), self._items, {"limit": 100, **query}):
            yield item

    def _path(self, id: str | None = None) -> str:
        needs_workspace = "{workspace}" in self._template
        path = fill_path(self._template, workspace=self._http.workspace_id() if needs_workspace else "")
        return path if id is None else path + fill_path("/{id}", id=id)


class Deletable(Listed):
    def create(self, *, idempotency_key: str | None = None, **fields: Any) -> Any:
        """Makes one, of the API's fields."""
        key = idempotency_key or new_key()
        return self._http.call(Request("POST", self._path(), json=fields, idempotency_key=key))

    def delete(self, id: str) -> None:
        self._http.call(Request("DELETE", self._path(id)))


class Updatable(Deletable):
    def update(self, id: str, **fields: Any) -> Any:
        """Changes the fields that are given."""
        return self._http.call(Request("PUT", self._path(id), json=fields))


class Resource(Updatable):
    def get(self, id: str) -> Any:
        return self._http.call(Request("GET", self._path(id)))


class Account:
    """The caller's account."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def get(self) -> Any:
        """Who the caller is, and what the credential allows."""
        return self._http.call(Request("GET", "/auth/account"))

    def delete(self, *, password: str | None = None) -> None:
        """Deletes the account, for which a session is needed."""
        self._http.call(Request("DELETE", "/auth/account", json=given(password=password)))


class Sandgate:
    """A client of one platform, for one workspace."""

    def __init__(self, *, url: str | None = None, token: str | None = None, workspace: str | None = None) -> None:
        http = self._http = Http(url, token, workspace)
        self.images = Resource(http, "/sandbox-images", "images")
        self.registries = Resource(http, "/registries", "registries")
        self.workspaces = Resource(http, "/workspaces", "workspaces")
        self.members = Updatable(http, "/workspaces/{workspace}/members", "members")
        self.api_tokens = Deletable(http, "/api-tokens", "api_tokens")
        self.audit_log = Listed(http, "/workspaces/{workspace}/audit-log", "entries")
        self.account = Account(http)

    def __enter__(self) -> Sandgate:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the client's connections."""
        self._http.close()

    def workspace_id(self) -> str:
        """The id of the workspace that this client uses."""
        return self._http.workspace_id()
