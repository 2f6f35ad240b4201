"""Made from the OpenAPI document: `npm run generate:client`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, TypedDict

from ._record import Record

if TYPE_CHECKING:
    from typing_extensions import Required

Encoding = Literal["utf8", "base64"]
EntryType = Literal["file", "directory", "symlink", "other"]
HostHeader = Literal["preview", "localhost"]
Permission = Literal["read", "provision", "use", "manage"]
ProcessState = Literal["running", "exited", "lost"]
Role = Literal["member", "admin", "owner"]
SandboxState = Literal["provisioning", "ready", "stopping", "stopped", "failed"]
StateReason = Literal[
    "stopped_by_user",
    "stopped_by_operator",
    "ttl_expired",
    "idle",
    "workspace_deleted",
    "image_pull_unauthorized",
    "image_not_found_in_registry",
    "image_invalid",
    "image_pull_failed",
    "registry_unreachable",
    "pull_timeout",
    "provisioning_failed",
    "unschedulable",
    "node_error",
    "container_config_error",
    "start_failed",
    "isolation_unavailable",
    "runtime_unavailable",
    "out_of_memory",
    "disk_full",
    "readiness_timeout",
    "exited",
    "evicted",
    "preempted",
    "node_drained",
    "node_lost",
    "runtime_lost",
]


class AccountRecord(Record):
    id: str
    username: str
    #: Whether the account is an operator's.
    is_operator: bool
    has_second_factor: bool
    created_at: str
    #: What the request was made with.
    credential: Literal["session", "api_token"]
    #: The workspace that the API token is limited to. Null: it has no such limit.
    workspace_id: str | None
    #: The highest role that the token has in any workspace, whatever your own. A token with a role never has an
    #: operator's rights.
    role: Role | None
    #: Limits the token to part of what its role allows: `read` allows reading records, logs and the audit log;
    #: `provision` allows provisioning, waiting for, extending and stopping sandboxes; `use` allows commands and files
    #: in them; `manage` allows all else. None includes another. Without permissions the token may do all that its role
    #: allows.
    permissions: list[Permission] | None


class AddMember(TypedDict, total=False):
    username: Required[str]
    role: Required[Role]


class ApiToken(Record):
    id: str
    description: str
    token_hint: str
    workspace_id: str | None
    #: The highest role that the token has in any workspace, whatever your own. A token with a role never has an
    #: operator's rights.
    role: Role | None
    #: Limits the token to part of what its role allows: `read` allows reading records, logs and the audit log;
    #: `provision` allows provisioning, waiting for, extending and stopping sandboxes; `use` allows commands and files
    #: in them; `manage` allows all else. None includes another. Without permissions the token may do all that its role
    #: allows.
    permissions: list[Permission] | None
    expires_at: str | None
    created_at: str
    last_used_at: str | None


class AuditActor(Record):
    user_id: str


class AuditCredential(Record):
    type: Literal["session", "api_token"]
    id: str


class AuditEntry(Record):
    _nested: ClassVar = {"actor": "AuditActor", "credential": "AuditCredential", "target": "AuditTarget"}
    id: str
    at: str
    workspace_id: str | None
    #: Null when nobody was signed in, or the platform acted by itself.
    actor: AuditActor | None
    #: That of the first request, if the entry stands for several.
    credential: AuditCredential | None
    #: The client's address. Null when the counted requests came from several.
    address: str | None
    action: str
    target: AuditTarget | None
    #: `success`, the error code of a refused request, or `upstream_error` if nobody knows whether it was done.
    outcome: str
    #: The id of the first request, if the entry stands for several.
    request_id: str | None
    #: The number of requests. Refused ones that are like a recorded one are counted with it for a while, and so are
    #: uses of a sandbox beyond 20 a minute.
    count: int


class AuditTarget(Record):
    type: str
    id: str
    #: The process in the sandbox.
    process_id: str | None
    #: The name of its program; of a command that is a string, `sh`.
    program: str | None
    #: The path in the sandbox, of which 1,000 characters are kept.
    path: str | None
    #: Where it was moved to.
    to: str | None
    #: The preview of one of the sandbox's ports.
    preview_id: str | None
    #: That port.
    port: str | None
    #: The member's new role.
    role: str | None


class ChangePassword(TypedDict, total=False):
    current_password: Required[str]
    #: One that is common or easy to guess is refused.
    password: Required[str]
    #: Whether your API tokens are revoked too.
    revoke_api_tokens: bool


class ConfirmSecondFactor(TypedDict, total=False):
    #: A code that your authenticator app shows, or a recovery code; each works once.
    otp: Required[str]


class CreateApiToken(TypedDict, total=False):
    description: Required[str]
    expires_at: str
    #: The only workspace in which the token works. Such a token never has operator rights.
    workspace_id: str
    #: The highest role that the token has in any workspace, whatever your own. A token with a role never has an
    #: operator's rights.
    role: Role
    #: Limits the token to part of what its role allows: `read` allows reading records, logs and the audit log;
    #: `provision` allows provisioning, waiting for, extending and stopping sandboxes; `use` allows commands and files
    #: in them; `manage` allows all else. None includes another. Without permissions the token may do all that its role
    #: allows.
    permissions: list[Permission]


class CreateImage(TypedDict, total=False):
    name: Required[str]
    image: Required[str]
    description: str | None
    #: By default the tag in `image`, otherwise `latest`.
    tag: str
    #: True by default.
    enabled: bool
    #: Makes it a global default. For operators only.
    is_default: bool
    #: The registry credential to pull with.
    registry_id: str | None
    #: In MiB. 1024 by default.
    memory_mb: int
    #: A sandbox is ready once `GET /` on this port answers 200 to 399 within 2 s. A redirect counts as such an answer.
    #: On Kubernetes a redirect to the same host is followed, and the last answer counts. Without a port, a sandbox is
    #: ready once a program can run in it.
    readiness_port: int | None
    ttl_seconds: int | None


class CreateRegistry(TypedDict, total=False):
    name: Required[str]
    #: `[http(s)://]host[:port]`
    url: Required[str]
    username: Required[str]
    password: Required[str]


class CreateSecondFactor(TypedDict, total=False):
    #: Required if the account has a password. Otherwise you must have signed in within the last 5 minutes.
    password: str


class CreatedApiToken(Record):
    id: str
    #: Shown only in this response.
    token: str
    description: str
    workspace_id: str | None
    #: The highest role that the token has in any workspace, whatever your own. A token with a role never has an
    #: operator's rights.
    role: Role | None
    #: Limits the token to part of what its role allows: `read` allows reading records, logs and the audit log;
    #: `provision` allows provisioning, waiting for, extending and stopping sandboxes; `use` allows commands and files
    #: in them; `manage` allows all else. None includes another. Without permissions the token may do all that its role
    #: allows.
    permissions: list[Permission] | None
    expires_at: str | None
    created_at: str


class CreatedPreview(Record):
    id: str
    #: Of the server in the sandbox.
    port: int
    url: str
    #: Whether it opens without a token.
    public: bool
    #: The Host header that the server gets: the preview's own host, or `localhost:<port>`.
    host_header: HostHeader
    created_by: str
    created_at: str
    expires_at: str
    #: Opens it, as `X-Sandgate-Token`. Shown only in this response.
    token: str


class DeleteAccount(TypedDict, total=False):
    #: Required if the account has a password. Otherwise you must have signed in within the last 5 minutes.
    password: str


class Entry(Record):
    #: What isn't UTF-8 in it is U+FFFD.
    path: str
    #: The path's bytes in base64, if it isn't UTF-8.
    path_base64: str | None
    #: What isn't UTF-8 in it is U+FFFD.
    name: str
    #: The name's bytes in base64, if it isn't UTF-8.
    name_base64: str | None
    type: EntryType
    size: int
    #: The permission bits in octal digits.
    mode: str
    uid: int
    gid: int
    user: str | None
    group: str | None
    modified_at: str
    symlink_target: str | None


class ExecResult(Record):
    _nested: ClassVar = {"pty": "TerminalSize"}
    id: str
    #: In the sandbox. Null when the program could not be started.
    pid: int | None
    command: list[str] | str
    cwd: str
    #: Null: the image's.
    user: str | None
    tag: str | None
    pty: TerminalSize | None
    #: `lost`: somebody in the sandbox killed what watched it, so how it ended is unknown.
    state: ProcessState
    #: 128 plus the signal's number for one that a signal ended. Null while it runs.
    exit_code: int | None
    #: The name of the signal that ended it.
    signal: str | None
    timed_out: bool
    stdin_open: bool
    #: Bytes of output so far.
    output_bytes: int
    #: Output before this byte is gone.
    retained_from: int
    started_at: str
    ended_at: str | None
    stdout: str
    stderr: str
    stdout_truncated: bool
    stderr_truncated: bool
    #: Of the output.
    encoding: Encoding


class Health(Record):
    status: str


class Identity(Record):
    id: str
    #: `google`, `microsoft` or `github`.
    provider: str
    #: The address that the provider verified last.
    username: str
    linked_at: str
    last_used_at: str | None


class IdentityList(Record):
    _nested: ClassVar = {"identities": "Identity"}
    identities: list[Identity]


class Image(Record):
    id: str
    name: str
    image: str
    description: str | None
    tag: str
    enabled: bool
    is_default: bool
    memory_mb: int
    created_at: str
    updated_at: str
    readiness_port: int | None
    ttl_seconds: int | None
    workspace_id: str | None
    registry_id: str | None
    registry_name: str | None


class ListeningPort(Record):
    port: int
    #: The address that it listens on.
    address: str
    #: The `id` of the process that it belongs to, if it is one of ours.
    process_id: str | None


class ListeningPortList(Record):
    _nested: ClassVar = {"ports": "ListeningPort"}
    ports: list[ListeningPort]


class LogEntry(Record):
    timestamp: str
    stream: Literal["stdout", "stderr"]
    log: str


class Login(TypedDict, total=False):
    username: Required[str]
    password: Required[str]
    #: Required only where reCAPTCHA is set up. Each request needs a new one.
    recaptchaToken: str
    #: Needed in an account with a second factor. A code that your authenticator app shows, or a recovery code; each
    #: works once.
    otp: str


class Member(Record):
    user_id: str
    username: str
    role: Role
    joined_at: str


class MetricPoint(Record):
    timestamp: str
    #: Cumulative CPU time in seconds.
    cpu_usage: float
    #: The working set in bytes.
    memory_usage: float


class Monitoring(Record):
    _nested: ClassVar = {"logs": "LogEntry", "metrics": "MetricPoint"}
    sandbox_id: str
    sandbox_name: str
    logs: list[LogEntry]
    metrics: list[MetricPoint]


class NewSecondFactor(Record):
    #: In base32, to be typed into an authenticator app.
    secret: str
    #: The same as an `otpauth:` address, to be shown as a QR code.
    uri: str


class OutputEvent(Record):
    type: Literal["output", "gap"]
    #: Bytes of output up to and with this one.
    id: int
    stream: Literal["stdout", "stderr", "pty"] | None
    data: str | None
    #: Of `data`.
    encoding: Encoding | None
    #: Of a gap: so many are gone.
    bytes: int | None


class PasswordAndCode(TypedDict, total=False):
    #: Required if the account has a password. Otherwise you must have signed in within the last 5 minutes.
    password: str
    #: A code that your authenticator app shows, or a recovery code; each works once.
    otp: Required[str]


class PasswordReset(Record):
    _nested: ClassVar = {"identities": "Identity"}
    success: bool
    #: The accounts at providers that can still sign in to yours.
    identities: list[Identity]


class Preview(Record):
    id: str
    #: Of the server in the sandbox.
    port: int
    url: str
    #: Whether it opens without a token.
    public: bool
    #: The Host header that the server gets: the preview's own host, or `localhost:<port>`.
    host_header: HostHeader
    created_by: str
    created_at: str
    expires_at: str


class PreviewLink(Record):
    #: Opens the preview once, in a browser.
    url: str
    expires_at: str


class PreviewList(Record):
    _nested: ClassVar = {"previews": "Preview"}
    previews: list[Preview]


class ProcessList(Record):
    _nested: ClassVar = {"processes": "ProcessRecord"}
    processes: list[ProcessRecord]


class ProcessOutput(Record):
    _nested: ClassVar = {"events": "OutputEvent", "process": "ProcessRecord"}
    events: list[OutputEvent]
    #: `after` of the next request.
    next: int
    process: ProcessRecord


class ProcessRecord(Record):
    _nested: ClassVar = {"pty": "TerminalSize"}
    id: str
    #: In the sandbox. Null when the program could not be started.
    pid: int | None
    command: list[str] | str
    cwd: str
    #: Null: the image's.
    user: str | None
    tag: str | None
    pty: TerminalSize | None
    #: `lost`: somebody in the sandbox killed what watched it, so how it ended is unknown.
    state: ProcessState
    #: 128 plus the signal's number for one that a signal ended. Null while it runs.
    exit_code: int | None
    #: The name of the signal that ended it.
    signal: str | None
    timed_out: bool
    stdin_open: bool
    #: Bytes of output so far.
    output_bytes: int
    #: Output before this byte is gone.
    retained_from: int
    started_at: str
    ended_at: str | None


class PullProgress(Record):
    downloaded_bytes: int
    total_bytes: int


class Readiness(Record):
    status: str
    dependencies: dict[str, str]


class RecoveryCodes(Record):
    #: Each works once in place of a code. Shown only here.
    recovery_codes: list[str]


class RefreshToken(TypedDict, total=False):
    refresh_token: Required[str]


class Register(TypedDict, total=False):
    username: Required[str]
    #: One that is common or easy to guess is refused.
    password: Required[str]
    #: Required only where reCAPTCHA is set up. Each request needs a new one.
    recaptchaToken: str


class Registry(Record):
    id: str
    name: str
    url: str
    username: str
    workspace_id: str
    created_at: str
    updated_at: str


class ResetPassword(TypedDict, total=False):
    token: Required[str]
    #: One that is common or easy to guess is refused.
    password: Required[str]


class SandboxRecord(Record):
    _nested: ClassVar = {"pull": "PullProgress", "timeline": "TimelineEntry"}
    id: str
    name: str
    workspace_id: str
    image_id: str
    image: str
    image_digest: str | None
    state: SandboxState
    #: Why it is not, or no longer, ready. More may come.
    state_reason: StateReason | None
    message: str | None
    #: What its user can do about it, if it failed.
    hint: str | None
    exit_code: int | None
    labels: dict[str, str]
    #: What runs instead of the image's entrypoint and command.
    command: list[str] | None
    #: The names of the environment variables that were set for it. Their values are never shown.
    env_names: list[str]
    memory_mb: int
    readiness_port: int | None
    #: Seconds from its start after which it ends, unless it is extended.
    ttl_seconds: int | None
    #: Seconds without use after which it ends. Null: it may be idle.
    idle_timeout_seconds: int | None
    created_by: str
    created_at: str
    updated_at: str
    #: Since it is ready, recorded every few seconds.
    last_used_at: str | None
    ready_at: str | None
    expires_at: str | None
    stopped_at: str | None
    #: While it is provisioning: how much of the layers that its image still lacked has come. Null where there was
    #: nothing to download, and on Kubernetes.
    pull: PullProgress | None
    timeline: list[TimelineEntry]


class SecondFactor(Record):
    enabled: bool
    recovery_codes_left: int


class Session(Record):
    id: str
    created_at: str
    #: When it was signed in or refreshed last.
    last_seen_at: str
    #: The client's address then.
    address: str | None
    user_agent: str | None
    #: Whether the request was made with it.
    current: bool


class SessionTokens(Record):
    access_token: str
    refresh_token: str
    #: Seconds
    expires_in: int
    #: Seconds
    refresh_expires_in: int


class SignedIn(Record):
    _nested: ClassVar = {"tokens": "SessionTokens"}
    success: bool
    tokens: SessionTokens


class Success(Record):
    success: bool


class TakenInput(Record):
    #: Bytes of input taken so far.
    offset: int
    closed: bool


class TerminalSize(Record):
    cols: int
    rows: int


class Ticket(Record):
    ticket: str
    expires_at: str


class TimelineEntry(Record):
    phase: Literal["accepted", "image_pulled", "created", "started", "ready", "stopped"]
    at: str


class UpdateImage(TypedDict, total=False):
    name: str
    image: str
    description: str | None
    #: By default the tag in `image`, otherwise `latest`.
    tag: str
    #: True by default.
    enabled: bool
    #: Makes it a global default. For operators only.
    is_default: bool
    #: The registry credential to pull with.
    registry_id: str | None
    #: In MiB. 1024 by default.
    memory_mb: int
    #: A sandbox is ready once `GET /` on this port answers 200 to 399 within 2 s. A redirect counts as such an answer.
    #: On Kubernetes a redirect to the same host is followed, and the last answer counts. Without a port, a sandbox is
    #: ready once a program can run in it.
    readiness_port: int | None
    ttl_seconds: int | None


class UpdateMember(TypedDict, total=False):
    role: Required[Role]


class UpdateRegistry(TypedDict, total=False):
    name: str
    #: `[http(s)://]host[:port]`
    url: str
    username: str
    password: str


class UpdateUser(TypedDict, total=False):
    enabled: Required[bool]


class User(Record):
    id: str
    username: str
    verified: bool
    operator: bool
    #: A disabled user can't sign in, and the user's tokens are refused.
    enabled: bool
    created_at: str


class Username(TypedDict, total=False):
    username: Required[str]


class VerifyEmail(TypedDict, total=False):
    token: Required[str]
    #: The account's password from now on, whatever it was registered with. One that is easy to guess is refused.
    password: Required[str]


class Workspace(Record):
    id: str
    name: str
    role: Role
    created_at: str
    updated_at: str


class WorkspaceFields(TypedDict, total=False):
    name: Required[str]
