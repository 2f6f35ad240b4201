"""What both halves share: settings, requests, answers, when a request is tried again, and local files."""

from __future__ import annotations

import base64
import codecs
import json
import os
import random
import re
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import httpx

from ._record import Record
from .errors import BadSettings, CommandFailed, CommandTimedOut, ProcessLost, SandgateError, TimedOut, WorkspaceNotFound
from .records import Entry, LogEntry, MetricPoint, ProcessRecord, Workspace

Command = str | Sequence[str]
ATTEMPT_SECONDS = 30.0
TRANSFER_SECONDS = 150.0
WAIT_SECONDS = 60
WAIT_GRACE_SECONDS = 15
#: The server sends a comment every 15 s, so a stream that is silent for longer than this has broken off.
SILENT_SECONDS = 45.0
MAX_RETRIES = 3
#: In seconds. For a caller who is asked to come back later than this, the refusal is the answer.
MAX_RETRY_AFTER = 60.0
#: How long it is tried to end what was left behind, in milliseconds.
UNDO_MS = 10_000.0
#: A connection that lasted so long has not merely failed again, even if nothing came.
STEADY_SECONDS = 60.0
#: The API takes 512 KiB of JSON, in which three bytes are four characters.
MAX_INLINE_INPUT = 384 * 1024
MAX_INPUT_CHUNK = 256 * 1024
#: No sandbox lives longer.
LONGEST_SECONDS = 86_400
PAGE_SIZE = 10_000
#: An answer whose lines have no more characters lacks none of its rows: the API leaves rows out above 31 MiB, and a
#: character is six bytes at most.
COMPLETE_CHARACTERS = 4 * 1024 * 1024


def parse_json(body: bytes | str) -> Any:
    return json.loads(body) if body else None


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


@dataclass
class Settings:
    url: str
    #: One, or what gives them.
    token: Any = field(repr=False)
    workspace: str | None


def resolve_settings(url: str | None, token: Any, workspace: str | None) -> Settings:
    """Completes settings from the environment and from what `sandgate login` stored, which goes to its own address
    alone. Raises BadSettings when what was stored can't be read, unless a token is given."""
    env = os.environ
    token = token or env.get("SANDGATE_TOKEN")
    try:
        stored = _read_stored_login()
    except BadSettings:
        # A program with a token of its own may not even see its user's files.
        if not token:
            raise
        stored = {}
    stored_url = stored.get("url")
    base = _base_url(url or env.get("SANDGATE_URL") or stored_url or "http://127.0.0.1:8080")
    if stored_url is None or _base_url(stored_url) != base:
        stored = {}
    return Settings(
        url=base,
        token=token or stored.get("token"),
        workspace=workspace or env.get("SANDGATE_WORKSPACE") or stored.get("workspace"),
    )


def _read_stored_login() -> dict[str, Any]:
    settings = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    file = Path(os.environ.get("SANDGATE_CONFIG") or Path(settings) / "sandgate" / "login.json")
    try:
        stored = json.loads(file.read_text("utf-8"))
        if not isinstance(stored, dict):
            raise TypeError("it is no object")
        return stored
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        hint = "Remove it and run `sandgate login` again."
        raise BadSettings(f"{file} can't be read: {error}", hint) from error


def _base_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadSettings(f"{url!r} is not an address of the API.", "Such as https://sandgate.example.com")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


@dataclass
class Request:
    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    #: The body of each try: bytes, or what makes chunks of them.
    content: bytes | Callable[[], Any] | None = None
    #: The body can't be read again.
    is_once: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Whether a try with an unknown outcome may be repeated: all but POST by default, and what has a key.
    repeatable: bool | None = None
    #: A creation: carries an Idempotency-Key, so that a repeated one makes nothing twice.
    idempotency_key: str | None = None
    #: How long one try may be silent, in seconds.
    attempt_seconds: float | None = None
    #: How long all tries may take, in milliseconds.
    timeout_ms: float | None = None
    final_codes: Sequence[str] = ()
    #: Needs no credential.
    anonymous: bool = False

    def build_headers(self, token: str | None, workspace: str | None) -> dict[str, str]:
        headers = dict(self.headers)
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        if workspace is not None:
            headers["x-workspace-id"] = workspace
        if self.idempotency_key is not None:
            headers["idempotency-key"] = self.idempotency_key
        if self.json is not None:
            headers["content-type"] = "application/json"
        elif self.content is not None:
            headers.setdefault("content-type", "application/octet-stream")
        return headers

    def build_query(self) -> list[tuple[str, str | int | float | bool | None]]:
        pairs: list[tuple[str, str | int | float | bool | None]] = []
        for name, values in self.query.items():
            for value in values if isinstance(values, (list, tuple)) else [values]:
                if value is not None:
                    pairs.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
        return pairs

    def build_body(self) -> Any:
        if self.json is not None:
            return json.dumps(self.json).encode()
        return self.content() if callable(self.content) else self.content

    @property
    def is_personal(self) -> bool:
        """Belongs to no workspace, or has it in its path."""
        return self.anonymous or self.path.startswith(
            ("/workspaces", "/api-tokens", "/auth", "/admin", "/healthz", "/readyz")
        )

    def may_retry(self, error: SandgateError) -> bool:
        if not error.retryable or error.code in self.final_codes or self.is_once:
            return False
        if error.retry_after is not None and error.retry_after > MAX_RETRY_AFTER:
            return False
        # These are refused before anything is done.
        if error.code in ("rate_limited", "sandbox_not_ready"):
            return True
        if self.repeatable is not None:
            return self.repeatable
        return self.method != "POST" or self.idempotency_key is not None


def new_key() -> str:
    return str(uuid.uuid4())


def may_be_made(error: BaseException) -> bool:
    """Whether a creation that failed may have been carried out, so that its key may find what nobody has a handle to.
    One that is cancelled or interrupted is no Exception."""
    return isinstance(error, TimedOut) or not isinstance(error, Exception)


def fill_path(path: str, **params: object) -> str:
    """Fills a path of the API. Raises BadSettings for nothing, `.` and `..`, with which it would be another path, such
    as the one that deletes all."""
    for name, value in params.items():
        if value in (None, "", ".", ".."):
            raise BadSettings(f"{name} must not be empty, '.' or '..'.")
    return path.format(**{name: quote(str(value), safe="") for name, value in params.items()})


def port_address(port: str, path: str) -> httpx.URL:
    """The address of a path of a port. Raises BadSettings for one that leads out of the port, to where the credential
    must not go."""
    start = httpx.URL(f"{port}/")
    address = f"{start}{path.removeprefix('/')}"
    # What stands between, such as a proxy, may take `%2e` for a dot.
    resolved = httpx.URL(re.sub("%2e", ".", address, flags=re.IGNORECASE))
    if not resolved.raw_path.startswith(start.raw_path):
        raise BadSettings(f"The path {path!r} leads out of the port.")
    return httpx.URL(address)


def retry_delay(retries: int, retry_after: float | None = None) -> float:
    """Seconds: doubles each time, with jitter, and is never less than the server asked for."""
    return (retry_after or 0) + min(10.0, 0.25 * 2.0**retries) * random.uniform(0.5, 1)


def is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def choose_workspace(default: str | None) -> str:
    """Where to work unless a workspace is named."""
    if default is None:
        raise _no_workspace("You have no workspace of your own.")
    return default


def find_workspace(own: Sequence[Workspace], name: str) -> str:
    """Finds a workspace by name. Others may add the caller to workspaces of the same name, so it must be the only one."""
    found = [each for each in own if each.name == name]
    if len(found) != 1:
        raise _no_workspace(f"You have {'several workspaces' if found else 'no workspace'} {name!r}.")
    return str(found[0].id)


def _no_workspace(message: str) -> WorkspaceNotFound:
    hint = "Name one by its id: `sandgate workspaces` lists them."
    return WorkspaceNotFound(message, code="workspace_not_found", status=404, hint=hint)


@dataclass
class Event:
    id: str | None
    event: str
    data: str


@dataclass
class Position:
    """An id without an event: where the stream is, before anything has come."""

    id: str


class EventParser:
    """Parses server-sent events from bytes as they come."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._fields: dict[str, str] = {}

    def feed(self, chunk: bytes) -> Iterator[Event | Position]:
        *lines, self._rest = (self._rest + self._decoder.decode(chunk)).split("\n")
        for line in lines:
            line = line.removesuffix("\r")
            if line == "":
                fields, self._fields = self._fields, {}
                if "data" in fields:
                    yield Event(fields.get("id"), fields.get("event", "message"), fields["data"])
                elif "id" in fields:
                    yield Position(fields["id"])
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data" and "data" in self._fields:
                value = f"{self._fields['data']}\n{value}"
            self._fields[name] = value


class Stat(Entry):
    #: Changes when the content does.
    etag: str | None


class FileChange(Record):
    """A change of a file. `overflow`: changes were lost."""

    type: Literal["create", "write", "delete", "move", "attrib", "overflow"]
    path: str | None
    #: Where a move led.
    to: str | None
    #: The bytes of both in base64, if they aren't UTF-8.
    path_base64: str | None
    to_base64: str | None


class Stop:
    """Ends what reads a stream, from another thread or task."""

    def __init__(self) -> None:
        self.is_set = False
        self._response: httpx.Response | None = None

    def hold(self, response: httpx.Response) -> None:
        """The stream that is read now."""
        self._response = response
        if self.is_set:
            self.set()

    def set(self) -> None:
        self.is_set = True
        stream = self._response.extensions.get("network_stream") if self._response is not None else None
        connection = stream.get_extra_info("socket") if stream is not None else None
        if connection is not None:
            try:
                # Closing alone doesn't wake who reads.
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                # It has ended by itself.
                pass


#: One without a zone is local time.
Moment = datetime | str

OutputStream = Literal["stdout", "stderr", "pty"]


@dataclass
class OutputChunk:
    stream: OutputStream
    data: str


@dataclass
class OutputBytes:
    stream: OutputStream
    data: bytes
    #: Bytes of output up to and with these.
    offset: int


class OutputReader:
    """Reads a process's events: its output, bytes that are gone, and how it ended."""

    def __init__(self, process: ProcessRecord | None = None) -> None:
        self._decoders: dict[OutputStream, codecs.IncrementalDecoder] = {}
        self.lost_bytes = 0
        self.process = process

    def read(self, event: Event) -> OutputBytes | None:
        if event.event == "output":
            told = json.loads(event.data)
            return OutputBytes(told["stream"], base64.b64decode(told["data"]), int(event.id or 0))
        if event.event == "gap":
            self.lost_bytes += json.loads(event.data)["bytes"]
        if event.event in ("start", "exit"):
            self.process = ProcessRecord(parse_json(event.data))
        return None

    def decode(self, chunk: OutputBytes) -> OutputChunk:
        """A character that was split between chunks stays whole."""
        decoder = self._decoders.setdefault(chunk.stream, codecs.getincrementaldecoder("utf-8")("replace"))
        return OutputChunk(chunk.stream, decoder.decode(chunk.data))

    def end(self) -> list[OutputChunk]:
        """What bytes at the end were no whole character."""
        rest = [OutputChunk(stream, decoder.decode(b"", True)) for stream, decoder in self._decoders.items()]
        return [chunk for chunk in rest if chunk.data]


@dataclass
class CommandResult:
    stdout: str
    stderr: str
    #: 128 plus the signal's number for one that a signal ended.
    exit_code: int
    signal: str | None
    #: Bytes of output that were gone before they were read.
    lost_bytes: int
    process: ProcessRecord = field(repr=False)


def to_result(reader: OutputReader, texts: Mapping[str, Sequence[str]], command: Command, check: bool) -> CommandResult:
    process = reader.process
    assert process is not None  # A stream that ends without it raises.
    shown = (command if isinstance(command, str) else " ".join(command))[:200]
    stdout, stderr, exit_code = "".join(texts["stdout"]), "".join(texts["stderr"]), process.exit_code
    if process.timed_out:
        message = f"The command was ended when its time was up: {shown}"
        raise CommandTimedOut(message, exit_code=exit_code, stdout=stdout, stderr=stderr)
    if process.state == "lost" or exit_code is None:
        message = "The process is lost: something in the sandbox ended what watched it."
        raise ProcessLost(message, exit_code=None, stdout=stdout, stderr=stderr)
    if check and exit_code != 0:
        message = f"The command ended with exit code {exit_code}: {shown}"
        raise CommandFailed(message, exit_code=exit_code, stdout=stdout, stderr=stderr)
    return CommandResult(stdout, stderr, exit_code, process.signal, reader.lost_bytes, process)


def command_fields(command: Command, stdin: str | bytes | None, **fields: Any) -> dict[str, Any]:
    """The fields of a command as the API has them."""
    body = {"command": command if isinstance(command, str) else list(command), **given(**fields)}
    if stdin is not None:
        data = to_bytes(stdin)
        if len(data) > MAX_INLINE_INPUT:
            hint = "Start it with `stdin_open=True` and use `write`, or use `run`."
            raise BadSettings(f"stdin is longer than {MAX_INLINE_INPUT} bytes.", hint)
        body |= {"stdin": base64.b64encode(data).decode(), "encoding": "base64"}
    return body


def to_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def to_mode(mode: int | str | None) -> str | None:
    return f"{mode:04o}" if isinstance(mode, int) else mode


def range_header(offset: int | None, length: int | None) -> dict[str, str]:
    """The header that asks for a part of a file; none for all of it."""
    if offset is None and length is None:
        return {}
    first = offset or 0
    return {"range": f"bytes={first}-{'' if length is None else first + length - 1}"}


def to_moment(moment: Moment | None) -> str | None:
    return moment.astimezone(timezone.utc).isoformat() if isinstance(moment, datetime) else moment


class SeenRows:
    """Tells rows apart that come as history and live too. Equal rows count by number."""

    def __init__(self) -> None:
        self._handed_on: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def start_over(self) -> None:
        """The rows that come now begin anew."""
        self._counts = {}

    def add(self, row: LogEntry | MetricPoint) -> bool:
        """Whether it is new."""
        key = json.dumps(row, sort_keys=True)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= self._handed_on.get(key, 0):
            return False
        self._handed_on[key] = count
        for known in (self._counts, self._handed_on):
            while len(known) > 2 * PAGE_SIZE:
                del known[next(iter(known))]
        return True


def may_lack_rows(rows: Sequence[Any]) -> bool:
    """Whether the API may have left rows out of an answer because their lines are long."""
    return sum(len(row.get("log", "")) for row in rows) > COMPLETE_CHARACTERS


def previous_page(rows: Sequence[Any]) -> tuple[list[Any], str]:
    """Rows of a page, and where the page before it ends. Others with the oldest one's time may be on that page."""
    oldest = rows[0].timestamp
    kept = [row for row in rows if row.timestamp != oldest]
    return (kept, kept[0].timestamp) if kept else (list(rows), oldest)
