from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import time

from ..records import SessionTokens
from .runtime import Lock, shield

#: Before its end an access token is replaced.
MARGIN_SECONDS = 30


class SessionToken:
    """Gives the access token of a session, and goes on with the session when that token is about to expire or was
    refused. Requests that come meanwhile wait for the one refresh."""

    def __init__(
        self,
        tokens: SessionTokens,
        refresh: Callable[[str], Awaitable[SessionTokens]],
        on_refresh: Callable[[SessionTokens], object] | None = None,
    ) -> None:
        self._tokens = tokens
        self._expires_at = time() + tokens.expires_in
        self._refresh = refresh
        self._on_refresh = on_refresh
        self._lock = Lock()

    async def __call__(self, refused: str | None = None) -> str | None:
        async with self._lock:
            token = self._tokens.access_token
            if token == refused or time() > self._expires_at - MARGIN_SECONDS:
                # A refresh token is used once, so this isn't left half done.
                token = await shield(self._go_on())
        return token

    async def _go_on(self) -> str:
        tokens = await self._refresh(self._tokens.refresh_token)
        self._tokens = tokens
        self._expires_at = time() + tokens.expires_in
        if self._on_refresh is not None:
            self._on_refresh(tokens)
        return tokens.access_token
