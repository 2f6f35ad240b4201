"""What every failure of the client is. Branch on the class or on `code`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class SandgateError(Exception):
    """A failure. `code` is one of the API's, or one of the client's own; `status` is 0 when there was no answer."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int = 0,
        hint: str | None = None,
        docs_url: str | None = None,
        retryable: bool = False,
        request_id: str | None = None,
        details: Sequence[Mapping[str, Any]] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.hint = hint
        self.docs_url = docs_url
        self.retryable = retryable
        self.request_id = request_id
        self.details = list(details or [])
        #: What the server said to wait, in seconds.
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        # Copying and pickling rebuild an exception from its `args` alone.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[SandgateError], args: tuple[Any, ...], state: dict[str, Any]) -> SandgateError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class Unauthenticated(SandgateError):
    pass


class InvalidToken(SandgateError):
    pass


class InvalidCredentials(SandgateError):
    pass


class EmailNotVerified(SandgateError):
    pass


class Forbidden(SandgateError):
    pass


class InsufficientRole(SandgateError):
    pass


class WorkspaceRequired(SandgateError):
    pass


class WorkspaceForbidden(SandgateError):
    pass


class WorkspaceNotFound(SandgateError):
    pass


class MemberNotFound(SandgateError):
    pass


class SandboxNotFound(SandgateError):
    pass


class SandboxNameConflict(SandgateError):
    pass


class SandboxNotReady(SandgateError):
    pass


class ProvisioningFailed(SandgateError):
    pass


class ImageNotFound(SandgateError):
    pass


class ImageDisabled(SandgateError):
    pass


class ImageImmutable(SandgateError):
    pass


class RegistryNotFound(SandgateError):
    pass


class ApiKeyNotFound(SandgateError):
    pass


class ValidationError(SandgateError):
    pass


class NotFound(SandgateError):
    pass


class Conflict(SandgateError):
    pass


class RateLimited(SandgateError):
    pass


class InternalError(SandgateError):
    pass


class UpstreamError(SandgateError):
    pass


classes: dict[str, type[SandgateError]] = {
    "unauthenticated": Unauthenticated,
    "invalid_token": InvalidToken,
    "invalid_credentials": InvalidCredentials,
    "email_not_verified": EmailNotVerified,
    "forbidden": Forbidden,
    "insufficient_role": InsufficientRole,
    "workspace_required": WorkspaceRequired,
    "workspace_forbidden": WorkspaceForbidden,
    "workspace_not_found": WorkspaceNotFound,
    "member_not_found": MemberNotFound,
    "sandbox_not_found": SandboxNotFound,
    "sandbox_name_conflict": SandboxNameConflict,
    "sandbox_not_ready": SandboxNotReady,
    "provisioning_failed": ProvisioningFailed,
    "image_not_found": ImageNotFound,
    "image_disabled": ImageDisabled,
    "image_immutable": ImageImmutable,
    "registry_not_found": RegistryNotFound,
    "api_key_not_found": ApiKeyNotFound,
    "validation_error": ValidationError,
    "not_found": NotFound,
    "conflict": Conflict,
    "rate_limited": RateLimited,
    "internal_error": InternalError,
    "upstream_error": UpstreamError,
}


class ConnectionFailed(SandgateError):
    """The server could not be reached, or the connection broke off. Whether the request was carried out is unknown."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, code="connection_failed", retryable=True, hint=hint)


class TimedOut(SandgateError):
    """There was no answer in time."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="timed_out", retryable=True, hint="Allow more time with `timeout_ms`.")


class BadSettings(SandgateError):
    """Settings are missing, or don't fit together."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, code="bad_settings", hint=hint)


class CommandFailed(SandgateError):
    """A command ended with another exit code than 0, and `check` was asked for."""

    default_code = "command_failed"

    def __init__(self, message: str, *, exit_code: int | None, stdout: str, stderr: str) -> None:
        super().__init__(message, code=self.default_code)
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr


class CommandTimedOut(CommandFailed):
    """A command was ended because its time was up. It has the output so far."""

    default_code = "command_timed_out"


class ProcessLost(CommandFailed):
    """Something in the sandbox killed what watched a process, so how it ended is unknown."""

    default_code = "process_lost"


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> SandgateError:
    """Reads the error that an answer tells of."""
    try:
        retry_after = float(headers.get("retry-after", ""))
    except ValueError:
        retry_after = None
    request_id = headers.get("x-request-id")
    try:
        error = json.loads(body)["error"]
        code = error["code"]
    except (ValueError, KeyError, TypeError):
        error, code = {}, None
    if not isinstance(code, str):
        # A proxy in between answered.
        return SandgateError(
            f"The server answered {status}",
            code=f"http_{status}",
            status=status,
            retryable=status in (429, 502, 503, 504),
            request_id=request_id,
            retry_after=retry_after,
        )
    return classes.get(code, SandgateError)(
        error.get("message", code),
        code=code,
        status=status,
        hint=error.get("hint"),
        docs_url=error.get("docs_url"),
        retryable=error.get("retryable", False),
        request_id=error.get("request_id") or request_id,
        details=error.get("details"),
        retry_after=retry_after,
    )
