from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .._protocol import given
from ..records import SessionTokens
from .http import AsyncHttp, ClientOptions
from .resources import (
    Account,
    Admin,
    ApiTokens,
    AuditLog,
    Images,
    Members,
    Registries,
    SecondFactors,
    Sessions,
    Workspaces,
)
from .sandbox import AsyncSandboxes
from .session import SessionToken

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncSandgate:
    """A client of one platform, for one workspace."""

    def __init__(self, **client: Unpack[ClientOptions]) -> None:
        http = self._http = AsyncHttp(**client)
        self._client = client
        self.sandboxes = AsyncSandboxes(http)
        self.images = Images(http)
        self.registries = Registries(http)
        self.workspaces = Workspaces(http)
        self.members = Members(http)
        self.api_tokens = ApiTokens(http)
        self.audit_log = AuditLog(http)
        self.account = Account(http)
        self.sessions = Sessions(http)
        self.second_factor = SecondFactors(http)
        self.admin = Admin(http)

    @classmethod
    async def sign_in(
        cls,
        *,
        username: str,
        password: str,
        otp: str | None = None,
        recaptcha_token: str | None = None,
        on_refresh: Callable[[SessionTokens], object] | None = None,
        timeout_ms: float | None = None,
        **client: Unpack[ClientOptions],
    ) -> AsyncSandgate:
        """Signs in by password, and with a code (`otp`) in an account with a second factor. The session goes on by
        itself for as long as the client is used; `on_refresh` is told of each new pair of tokens, the first too."""
        made = cls(**client)
        try:
            codes = given(otp=otp, recaptchaToken=recaptcha_token)
            tokens = await made.sessions.create(username=username, password=password, timeout_ms=timeout_ms, **codes)
            if on_refresh is not None:
                on_refresh(tokens)
        except BaseException:
            await made.close()
            raise
        made._use(SessionToken(tokens, made.sessions.refresh, on_refresh))
        return made

    def _use(self, token: SessionToken) -> None:
        self._client["token"] = token
        self._http.settings.token = token

    def for_workspace(self, workspace: str) -> AsyncSandgate:
        """The same client for another workspace, by id or name. It is closed by itself."""
        client: ClientOptions = {**self._client, "workspace": workspace}
        return AsyncSandgate(**client)

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

    @property
    def url(self) -> str:
        """The address of the API."""
        return self._http.settings.url
