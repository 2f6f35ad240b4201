"""Everything of the API but sandboxes, as it has it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from .. import records
from .._protocol import Moment, Request, fill_path, given, new_key, to_moment
from .._record import Record
from .http import Http

if TYPE_CHECKING:
    from typing_extensions import Unpack

R = TypeVar("R", bound=Record)
Identities = list[records.Identity]
Codes = list[str]


class Resource:
    def __init__(self, http: Http) -> None:
        self._http = http

    def _get(self, path: str, kind: type[R], timeout_ms: float | None) -> R:
        return self._http.call(Request("GET", path, timeout_ms=timeout_ms), kind)

    def _create(self, path: str, kind: type[R], fields: Any, key: str | None, timeout_ms: float | None) -> R:
        request = Request("POST", path, json=fields, idempotency_key=key or new_key(), timeout_ms=timeout_ms)
        return self._http.call(request, kind)

    def _update(self, path: str, kind: type[R], fields: Any, timeout_ms: float | None) -> R:
        return self._http.call(Request("PUT", path, json=fields, timeout_ms=timeout_ms), kind)

    def _delete(self, path: str, timeout_ms: float | None, fields: Any = None) -> None:
        self._http.read(Request("DELETE", path, json=fields, timeout_ms=timeout_ms))

    def _post(self, path: str, kind: type[R], fields: Any, timeout_ms: float | None, **rest: Any) -> R:
        return self._http.call(Request("POST", path, json=fields, timeout_ms=timeout_ms, **rest), kind)


class Images(Resource):
    """The images that sandboxes are made from."""

    def list(
        self, *, enabled_only: bool | None = None, limit: int = 100, timeout_ms: float | None = None
    ) -> Generator[records.Image, None, None]:
        """All of them, read page by page; a page has `limit`."""
        # Without a limit the API gives all at once.
        query = given(enabled_only=enabled_only, limit=limit)
        return self._http.pages("/sandbox-images", "images", records.Image, query, timeout_ms=timeout_ms)

    def get(self, id: str, *, timeout_ms: float | None = None) -> records.Image:
        return self._get(fill_path("/sandbox-images/{id}", id=id), records.Image, timeout_ms)

    def create(
        self,
        *,
        idempotency_key: str | None = None,
        timeout_ms: float | None = None,
        **fields: Unpack[records.CreateImage],
    ) -> records.Image:
        return self._create("/sandbox-images", records.Image, fields, idempotency_key, timeout_ms)

    def update(
        self, id: str, *, timeout_ms: float | None = None, **fields: Unpack[records.UpdateImage]
    ) -> records.Image:
        """Changes the fields that are given."""
        return self._update(fill_path("/sandbox-images/{id}", id=id), records.Image, fields, timeout_ms)

    def delete(self, id: str, *, timeout_ms: float | None = None) -> None:
        self._delete(fill_path("/sandbox-images/{id}", id=id), timeout_ms)


class Registries(Resource):
    """The credentials of private registries."""

    def list(self, *, limit: int = 100, timeout_ms: float | None = None) -> Generator[records.Registry, None, None]:
        """All of them, read page by page; a page has `limit`."""
        query = {"limit": limit}
        return self._http.pages("/registries", "registries", records.Registry, query, timeout_ms=timeout_ms)

    def get(self, id: str, *, timeout_ms: float | None = None) -> records.Registry:
        return self._get(fill_path("/registries/{id}", id=id), records.Registry, timeout_ms)

    def create(
        self,
        *,
        idempotency_key: str | None = None,
        timeout_ms: float | None = None,
        **fields: Unpack[records.CreateRegistry],
    ) -> records.Registry:
        return self._create("/registries", records.Registry, fields, idempotency_key, timeout_ms)

    def update(
        self, id: str, *, timeout_ms: float | None = None, **fields: Unpack[records.UpdateRegistry]
    ) -> records.Registry:
        """Changes the fields that are given."""
        return self._update(fill_path("/registries/{id}", id=id), records.Registry, fields, timeout_ms)

    def delete(self, id: str, *, timeout_ms: float | None = None) -> None:
        self._delete(fill_path("/registries/{id}", id=id), timeout_ms)


class Workspaces(Resource):
    """The workspaces that the caller is a member of."""

    def list(self, *, limit: int = 100, timeout_ms: float | None = None) -> Generator[records.Workspace, None, None]:
        """All of them, read page by page; a page has `limit`."""
        query = {"limit": limit}
        return self._http.pages("/workspaces", "workspaces", records.Workspace, query, timeout_ms=timeout_ms)

    def get(self, id: str, *, timeout_ms: float | None = None) -> records.Workspace:
        return self._get(fill_path("/workspaces/{id}", id=id), records.Workspace, timeout_ms)

    def create(
        self, *, name: str, idempotency_key: str | None = None, timeout_ms: float | None = None
    ) -> records.Workspace:
        return self._create("/workspaces", records.Workspace, {"name": name}, idempotency_key, timeout_ms)

    def update(self, id: str, *, name: str, timeout_ms: float | None = None) -> records.Workspace:
        path = fill_path("/workspaces/{id}", id=id)
        return self._update(path, records.Workspace, {"name": name}, timeout_ms)

    def delete(self, id: str, *, timeout_ms: float | None = None) -> None:
        self._delete(fill_path("/workspaces/{id}", id=id), timeout_ms)


class Members(Resource):
    """The members of the client's workspace."""

    _path = "/workspaces/{workspace}/members"

    def list(self, *, limit: int = 100, timeout_ms: float | None = None) -> Generator[records.Member, None, None]:
        """All of them, read page by page; a page has `limit`."""
        return self._http.pages(self._path, "members", records.Member, {"limit": limit}, timeout_ms=timeout_ms)

    def create(
        self,
        *,
        username: str,
        role: records.Role,
        idempotency_key: str | None = None,
        timeout_ms: float | None = None,
    ) -> records.Member:
        """Adds a user by name."""
        fields = {"username": username, "role": role}
        return self._create(self._path, records.Member, fields, idempotency_key, timeout_ms)

    def update(self, user_id: str, *, role: records.Role, timeout_ms: float | None = None) -> records.Member:
        """Gives a member another role."""
        return self._update(self._of(user_id), records.Member, {"role": role}, timeout_ms)

    def delete(self, user_id: str, *, timeout_ms: float | None = None) -> None:
        """Removes a member; anybody may remove themselves."""
        self._delete(self._of(user_id), timeout_ms)

    def _of(self, user_id: str) -> str:
        return self._path + fill_path("/{user_id}", user_id=user_id)


class ApiTokens(Resource):
    """The caller's API tokens, for which a session is needed."""

    def list(self, *, limit: int = 100, timeout_ms: float | None = None) -> Generator[records.ApiToken, None, None]:
        """All of them, read page by page; a page has `limit`."""
        query = {"limit": limit}
        return self._http.pages("/api-tokens", "api_tokens", records.ApiToken, query, timeout_ms=timeout_ms)

    def create(
        self,
        *,
        idempotency_key: str | None = None,
        timeout_ms: float | None = None,
        **fields: Unpack[records.CreateApiToken],
    ) -> records.CreatedApiToken:
        """Makes a token, which is shown this once."""
        return self._create("/api-tokens", records.CreatedApiToken, fields, idempotency_key, timeout_ms)

    def delete(self, token_or_id: str, *, timeout_ms: float | None = None) -> None:
        """Revokes a token, by its id or by itself."""
        self._delete(fill_path("/api-tokens/{id}", id=token_or_id), timeout_ms)

    def delete_all(self, *, timeout_ms: float | None = None) -> None:
        """Revokes all of them."""
        self._delete("/api-tokens", timeout_ms)


class AuditLog(Resource):
    """The audit log of the client's workspace, for its admins."""

    def list(
        self,
        *,
        action: str | None = None,
        actor: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int = 100,
        timeout_ms: float | None = None,
    ) -> Generator[records.AuditEntry, None, None]:
        """Newest first, read page by page; a page has `limit`."""
        query = given(action=action, actor=actor, since=to_moment(since), until=to_moment(until), limit=limit)
        path = "/workspaces/{workspace}/audit-log"
        return self._http.pages(path, "entries", records.AuditEntry, query, timeout_ms=timeout_ms)


class Sessions(Resource):
    """The caller's sessions, and how one begins and ends."""

    def list(self, *, limit: int = 100, timeout_ms: float | None = None) -> Generator[records.Session, None, None]:
        """All of them, read page by page; a page has `limit`."""
        query = {"limit": limit}
        return self._http.pages("/auth/sessions", "sessions", records.Session, query, timeout_ms=timeout_ms)

    def create(
        self, *, timeout_ms: float | None = None, **fields: Unpack[records.Login]
    ) -> records.SessionTokens:
        """Signs in. An account with a second factor needs `otp`: without it InvalidCredentials has `body.otp` in
        `details`."""
        answer = self._post("/auth/login", records.SignedIn, fields, timeout_ms, anonymous=True)
        return answer.tokens

    def refresh(self, refresh_token: str, *, timeout_ms: float | None = None) -> records.SessionTokens:
        """Goes on with a session before its access token expires."""
        fields = {"refresh_token": refresh_token}
        answer = self._post(
            "/auth/refresh", records.SignedIn, fields, timeout_ms, anonymous=True, repeatable=True
        )
        return answer.tokens

    def sign_out(self, refresh_token: str, *, timeout_ms: float | None = None) -> None:
        """Ends the session that a refresh token belongs to."""
        request = Request("POST", "/auth/logout", json={"refresh_token": refresh_token}, timeout_ms=timeout_ms)
        request.anonymous = request.repeatable = True
        self._http.read(request)

    def delete(self, id: str, *, timeout_ms: float | None = None) -> None:
        self._delete(fill_path("/auth/sessions/{id}", id=id), timeout_ms)

    def delete_others(self, *, timeout_ms: float | None = None) -> None:
        """Ends all but the caller's."""
        self._delete("/auth/sessions", timeout_ms)


class Account(Resource):
    """The caller's account."""

    def get(self, *, timeout_ms: float | None = None) -> records.AccountRecord:
        """Who the caller is, and what the credential allows."""
        return self._get("/auth/account", records.AccountRecord, timeout_ms)

    def delete(self, *, password: str | None = None, timeout_ms: float | None = None) -> None:
        """Deletes the account, for which a session is needed."""
        self._delete("/auth/account", timeout_ms, given(password=password))

    def change_password(
        self, *, timeout_ms: float | None = None, **fields: Unpack[records.ChangePassword]
    ) -> None:
        """Ends all other sessions."""
        self._post("/auth/password", records.Success, fields, timeout_ms)

    def register(self, *, timeout_ms: float | None = None, **fields: Unpack[records.Register]) -> None:
        """Asks for an account; a mail with a link comes."""
        self._post("/auth/register", records.Success, fields, timeout_ms, anonymous=True)

    def verify_email(self, *, timeout_ms: float | None = None, **fields: Unpack[records.VerifyEmail]) -> None:
        self._post("/auth/verify-email", records.Success, fields, timeout_ms, anonymous=True)

    def resend_verification(self, username: str, *, timeout_ms: float | None = None) -> None:
        fields = {"username": username}
        self._post("/auth/resend-verification", records.Success, fields, timeout_ms, anonymous=True)

    def request_password_reset(self, username: str, *, timeout_ms: float | None = None) -> None:
        fields = {"username": username}
        self._post("/auth/password/forgot", records.Success, fields, timeout_ms, anonymous=True)

    def reset_password(
        self, *, timeout_ms: float | None = None, **fields: Unpack[records.ResetPassword]
    ) -> Identities:
        """Returns the accounts at providers that can still sign in."""
        path = "/auth/password/reset"
        return (self._post(path, records.PasswordReset, fields, timeout_ms, anonymous=True)).identities

    def list_identities(self, *, timeout_ms: float | None = None) -> Identities:
        """The accounts at providers that can sign in."""
        return (self._get("/auth/identities", records.IdentityList, timeout_ms)).identities

    def delete_identity(self, id: str, *, timeout_ms: float | None = None) -> None:
        self._delete(fill_path("/auth/identities/{id}", id=id), timeout_ms)


class SecondFactors(Resource):
    """The second factor of the caller's account."""

    def get(self, *, timeout_ms: float | None = None) -> records.SecondFactor:
        return self._get("/auth/second-factor", records.SecondFactor, timeout_ms)

    def create(self, *, password: str | None = None, timeout_ms: float | None = None) -> records.NewSecondFactor:
        """Begins to enable it; `confirm` with a code completes it."""
        fields = given(password=password)
        return self._post("/auth/second-factor", records.NewSecondFactor, fields, timeout_ms)

    def confirm(self, otp: str, *, timeout_ms: float | None = None) -> Codes:
        """Returns the recovery codes, which are shown this once."""
        path = "/auth/second-factor/confirm"
        return (self._post(path, records.RecoveryCodes, {"otp": otp}, timeout_ms)).recovery_codes

    def create_recovery_codes(
        self, *, timeout_ms: float | None = None, **fields: Unpack[records.PasswordAndCode]
    ) -> Codes:
        """Replaces the recovery codes."""
        path = "/auth/second-factor/recovery-codes"
        return (self._post(path, records.RecoveryCodes, fields, timeout_ms)).recovery_codes

    def delete(self, *, timeout_ms: float | None = None, **fields: Unpack[records.PasswordAndCode]) -> None:
        self._delete("/auth/second-factor", timeout_ms, fields)


class Admin(Resource):
    """What operators of the platform may do."""

    def list_users(
        self, *, username: str | None = None, limit: int = 100, timeout_ms: float | None = None
    ) -> Generator[records.User, None, None]:
        query = given(username=username, limit=limit)
        return self._http.pages("/admin/users", "users", records.User, query, timeout_ms=timeout_ms)

    def update_user(self, id: str, *, enabled: bool, timeout_ms: float | None = None) -> records.User:
        path = fill_path("/admin/users/{id}", id=id)
        return self._update(path, records.User, {"enabled": enabled}, timeout_ms)

    def delete_user(self, id: str, *, timeout_ms: float | None = None) -> None:
        self._delete(fill_path("/admin/users/{id}", id=id), timeout_ms)

    def end_user_sessions(self, id: str, *, timeout_ms: float | None = None) -> None:
        self._delete(fill_path("/admin/users/{id}/sessions", id=id), timeout_ms)

    def revoke_user_api_tokens(self, id: str, *, timeout_ms: float | None = None) -> None:
        self._delete(fill_path("/admin/users/{id}/api-tokens", id=id), timeout_ms)

    def delete_user_second_factor(self, id: str, *, timeout_ms: float | None = None) -> None:
        self._delete(fill_path("/admin/users/{id}/second-factor", id=id), timeout_ms)

    def list_sandboxes(
        self,
        *,
        state: records.SandboxState | None = None,
        workspace_id: str | None = None,
        user_id: str | None = None,
        limit: int = 100,
        timeout_ms: float | None = None,
    ) -> Generator[records.SandboxRecord, None, None]:
        """The sandboxes of all workspaces."""
        query = given(state=state, workspace_id=workspace_id, user_id=user_id, limit=limit)
        return self._http.pages("/admin/sandboxes", "sandboxes", records.SandboxRecord, query, timeout_ms=timeout_ms)

    def stop_sandbox(self, id: str, *, timeout_ms: float | None = None) -> None:
        self._delete(fill_path("/admin/sandboxes/{id}", id=id), timeout_ms)

    def list_audit_log(
        self,
        *,
        action: str | None = None,
        actor: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int = 100,
        timeout_ms: float | None = None,
    ) -> Generator[records.AuditEntry, None, None]:
        """The audit log of all workspaces, newest first."""
        query = given(action=action, actor=actor, since=to_moment(since), until=to_moment(until), limit=limit)
        return self._http.pages("/admin/audit-log", "entries", records.AuditEntry, query, timeout_ms=timeout_ms)
