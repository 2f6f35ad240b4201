"""What is tried again and how, in front of servers that fail. No platform is needed."""

import asyncio
import base64
import copy
import io
import json
import os
import pickle
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from support import check, until

import sandgate
from sandgate import Sandgate, errors

WORKSPACE = "00000000-0000-4000-8000-000000000000"


@contextmanager
def serve(answer, **options):
    """A client of a server whose answers a function gives: a status, a body and headers; None breaks off."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self):
            is_chunked = self.headers.get("transfer-encoding") == "chunked"
            body = self.read_chunks() if is_chunked else self.rfile.read(int(self.headers.get("content-length", 0)))
            seen.append((self.command, self.path, dict(self.headers), body))
            given = answer(len(seen), self)
            if given is None:
                return
            status, content, headers = given
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def read_chunks(self):
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    given = {"token": "t", "workspace": WORKSPACE, **options}
    try:
        with Sandgate(url=f"http://127.0.0.1:{server.server_port}", **given) as client:
            yield client, seen
    finally:
        server.shutdown()
        server.server_close()


def failure(code, status, headers=None, retryable=True):
    error = {"code": code, "message": "failed", "hint": "a hint", "retryable": retryable, "request_id": "r"}
    return status, {"error": error}, headers or {}


@pytest.fixture(autouse=True)
def delays(monkeypatch):
    """Retries come at once; their delays are told."""
    told = []
    for half in ("_sync", "_async"):
        monkeypatch.setattr(getattr(sandgate, half).http, "sleep", told.append)
    return told


def test_the_workspace_is_the_default_one_or_the_only_one_of_its_name():
    def answer(*_):
        records = [{"id": id, "name": name, "role": "owner"} for id, name in (("a", "one"), ("b", "two"), ("c", "two"))]
        return 200, {"workspaces": records, "next_cursor": None, "default_workspace_id": default}, {}

    default = WORKSPACE
    with serve(answer, workspace=None) as (client, _):
        assert client.workspace_id() == WORKSPACE
    default = None
    for name, expected in (
        (None, "You have no workspace of your own."),
        ("two", "You have several workspaces 'two'."),
        ("three", "You have no workspace 'three'."),
    ):
        with serve(answer, workspace=name) as (client, _), pytest.raises(errors.WorkspaceNotFound, match=expected):
            client.workspace_id()
    with serve(answer, workspace="one") as (client, _):
        assert client.workspace_id() == "a"


def test_a_login_that_cannot_be_read_is_missed_only_where_no_token_is_given(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    # What is below a file can't be read, as what root alone may read can't.
    monkeypatch.setenv("SANDGATE_CONFIG", str(tmp_path / "file" / "login.json"))
    monkeypatch.delenv("SANDGATE_TOKEN", raising=False)
    pytest.raises(errors.BadSettings, Sandgate)
    assert Sandgate(token="given")._http.settings.token == "given"
    monkeypatch.setenv("SANDGATE_TOKEN", "from-env")
    assert Sandgate()._http.settings.token == "from-env"


def test_a_creation_is_repeated_with_one_key(delays):
    with serve(lambda n, _: failure("internal_error", 500) if n < 4 else (201, {"id": "made"}, {})) as (client, seen):
        assert client.images.create(name="x", image="y").id == "made"
    keys = {headers["idempotency-key"] for _, _, headers, _ in seen}
    assert len(seen) == 4 and len(keys) == 1
    for retry, delay in enumerate(delays):
        assert 0.125 * 2**retry <= delay <= 0.25 * 2**retry


def test_three_retries_are_all():
    with serve(lambda *_: failure("upstream_error", 502)) as (client, seen):
        error = pytest.raises(errors.UpstreamError, client.account.get).value
    assert len(seen) == 4
    assert (error.code, error.status, error.hint, error.request_id) == ("upstream_error", 502, "a hint", "r")
    with serve(lambda *_: failure("upstream_error", 502), max_retries=1) as (client, seen):
        pytest.raises(errors.UpstreamError, client.account.get)
    assert len(seen) == 2


def test_errors_are_copied_and_passed_between_processes():
    with serve(lambda *_: failure("sandbox_not_found", 404, {"retry-after": "7"}, retryable=False)) as (client, _):
        refused = pytest.raises(errors.SandboxNotFound, client.sandboxes.get, "s").value
    failed = errors.CommandTimedOut("late", exit_code=137, stdout="out", stderr="err")
    for error in (refused, failed, errors.ConnectionFailed("lost", "a hint"), errors.TimedOut("late")):
        for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert type(same) is type(error)
            assert (str(same), same.__dict__) == (str(error), error.__dict__)


def test_retry_after_is_heeded(delays):
    with serve(lambda n, _: failure("rate_limited", 429, {"retry-after": "7"}) if n == 1 else (204, b"", {})) as (
        client,
        seen,
    ):
        # Refused before anything is done, so any request may be sent again.
        client._http.read(sandgate._protocol.Request("POST", "/sandboxes/s/processes/p/signal", json={}))
    assert len(seen) == 2 and 7 < delays[0] < 8


def test_what_may_have_been_done_is_not_repeated():
    with serve(lambda *_: failure("internal_error", 500)) as (client, seen):
        process = sandgate._sync.process.Process(client._http, "s", sandgate.records.ProcessRecord(id="p"))
        pytest.raises(errors.InternalError, process.signal, "SIGINT")
    assert len(seen) == 1
    with serve(lambda *_: None) as (client, seen):
        process = sandgate._sync.process.Process(client._http, "s", sandgate.records.ProcessRecord(id="p"))
        pytest.raises(errors.ConnectionFailed, process.signal, "SIGINT")
    assert len(seen) == 1
    with serve(lambda *_: failure("conflict", 409, retryable=False)) as (client, seen):
        pytest.raises(errors.Conflict, client.images.delete, "i")
    assert len(seen) == 1


def test_what_can_be_read_once_is_sent_once():
    with serve(lambda *_: failure("rate_limited", 429)) as (client, seen):
        files = sandgate._sync.files.Files(client._http, "s")
        pytest.raises(errors.RateLimited, files.write, "/a", iter([b"a", b"b"]))
    assert len(seen) == 1


def test_a_local_pipe_is_sent_once_and_a_local_file_is_read_again(tmp_path):
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_bytes(b"one")
    writer = threading.Thread(target=pipe.write_bytes, args=(b"one",))
    with serve(lambda n, _: failure("rate_limited", 429) if n < 3 else (200, {"path": "/a"}, {})) as (client, seen):
        files = sandgate._sync.files.Files(client._http, "s")
        writer.start()
        pytest.raises(errors.RateLimited, files.upload, pipe, "/a")
        writer.join()
        files.upload(file, "/a")
        pytest.raises(FileNotFoundError, files.upload, tmp_path / "missing", "/a")
    assert [body for _, _, _, body in seen] == [b"one"] * 3


def test_a_local_file_that_grows_is_sent_with_what_has_come(tmp_path, monkeypatch):
    file = tmp_path / "log"
    file.write_bytes(b"one")
    opened = sandgate._local.open_local

    def open_grown(path):
        with file.open("ab") as log:
            log.write(b"two")
        return opened(path)

    monkeypatch.setattr(sandgate._sync.files, "open_local", open_grown)
    with serve(lambda *_: (200, {"path": "/a"}, {})) as (client, seen):
        sandgate._sync.files.Files(client._http, "s").upload(file, "/a")
    assert seen[0][3] == b"onetwo"


def test_a_link_to_a_folder_is_sent_as_the_folder(tmp_path):
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    link.symlink_to(folder)
    with serve(lambda *_: (200, {"path": "/a"}, {})) as (client, seen):
        sandgate._sync.files.Files(client._http, "s").upload(link, "/a")
    with tarfile.open(fileobj=io.BytesIO(seen[-1][3])) as archive:
        assert archive.getnames() == [".", "./a.txt"]


@pytest.mark.parametrize("id", ["", ".", ".."])
def test_an_id_never_makes_another_request_of_it(id):
    with serve(lambda *_: (204, b"", {})) as (client, seen):
        ports = sandgate._sync.ports.Ports(client._http, "s")
        for delete in (client.api_tokens.delete, client.members.delete, client.images.delete, ports.close):
            pytest.raises(errors.BadSettings, delete, id)
    assert seen == []


def test_a_write_begins_where_others_have_written_to_or_after_what_was_taken_of_one_that_failed():
    taken = 0

    def answer(n, _):
        nonlocal taken
        # Of a repeated write nothing is taken again.
        if not 5 <= n <= 7:
            taken += len(seen[-1][3])
        # The answer to the second write is lost with all its retries.
        return failure("upstream_error", 502) if 4 <= n <= 7 else (200, {"offset": taken}, {})

    with serve(answer) as (client, seen):
        process = sandgate._sync.process.Process(client._http, "s", sandgate.records.ProcessRecord(id="p"))
        process.write("x")
        taken += len("from another")
        pytest.raises(errors.UpstreamError, process.write, "abc")
        process.write("DEF")
        process.close_stdin()
    stdin = "/sandboxes/s/processes/p/stdin"
    assert [(path, body) for _, path, _, body in seen] == [
        (stdin, b""),
        (f"{stdin}?offset=0", b"x"),
        (stdin, b""),
        *[(f"{stdin}?offset=13", b"abc")] * 4,
        (stdin, b""),
        (f"{stdin}?offset=16", b"DEF"),
        (f"{stdin}?eof=true", b""),
    ]


@pytest.mark.parametrize(
    ("make", "made", "ended"),
    [
        (lambda client: client.sandboxes.create("i"), "/sandboxes/provision", "/sandboxes/s"),
        (lambda client: commands_of(client).run("c"), "/sandboxes/s/exec", "/sandboxes/s/processes/p"),
        (
            lambda client: commands_of(client).run("c", stdin="x" * 400_000),
            "/sandboxes/s/processes",
            "/sandboxes/s/processes/p",
        ),
    ],
)
def test_what_was_made_before_a_cancelled_call_was_answered_is_ended(make, made, ended):
    asked, over = threading.Event(), threading.Event()

    def answer(n, handler):
        if n == 1:
            asked.set()
            over.wait(60)
            return None
        if handler.command == "DELETE":
            return 204, b"", {}
        if handler.path.endswith("/exec"):
            return 200, events((0, "start", {"id": "p", "state": "running"})), {"content-type": "text/event-stream"}
        return 201, {"id": "s" if handler.path.endswith("/provision") else "p", "state": "running"}, {}

    async def cancel(url):
        async with sandgate.AsyncSandgate(url=url, token="t", workspace=WORKSPACE) as client:
            call = asyncio.create_task(make(client))
            await asyncio.to_thread(asked.wait, 60)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    with serve(answer) as (client, seen):
        asyncio.run(cancel(client._http.settings.url))
        over.set()
    assert [(method, path) for method, path, _, _ in seen] == [("POST", made), ("POST", made), ("DELETE", ended)]
    assert seen[0][3] == seen[1][3]
    assert seen[0][2]["idempotency-key"] == seen[1][2]["idempotency-key"]


def commands_of(client):
    return sandgate._async.commands.Commands(client._http, "s")


def test_a_deletion_whose_answer_was_lost_is_done():
    with serve(lambda n, _: None if n == 1 else failure("image_not_found", 404, retryable=False)) as (client, seen):
        client.images.delete("i")
    assert len(seen) == 2


def test_a_refused_token_is_asked_for_once_more():
    asked = []

    def provide(refused):
        asked.append(refused)
        return "new" if refused else "old"

    def answer(_, handler):
        is_new = handler.headers["authorization"] == "Bearer new"
        return (200, {"username": "u"}, {}) if is_new else failure("invalid_token", 401, retryable=False)

    with serve(answer, token=provide) as (client, seen):
        assert client.account.get().username == "u"
    assert asked == [None, "old", "old"] and len(seen) == 2


def test_a_proxy_s_answer_is_an_error_of_its_status():
    with serve(lambda *_: (503, b"<html>", {})) as (client, seen):
        error = pytest.raises(errors.SandgateError, client.account.get).value
    assert (error.code, error.status, len(seen)) == ("http_503", 503, 4)


def test_time_limits_hold_with_all_retries():
    def answer(*_):
        threading.Event().wait(0.3)
        return 200, {"username": "u"}, {}

    with serve(answer) as (client, _):
        pytest.raises(errors.TimedOut, client.account.get, timeout_ms=100)
    with serve(answer, request_timeout_ms=50) as (client, seen):
        pytest.raises(errors.TimedOut, client.account.get)
        assert len(seen) == 4


def test_a_cookie_of_a_port_is_not_kept():
    with serve(lambda *_: (200, {"id": "s"}, {"set-cookie": "a=b; Path=/"})) as (client, seen):
        sandbox = client.sandboxes.get("s")
        assert sandbox.fetch(80, "/").status_code == 200
        assert client.sandboxes.get("s")
    assert all("cookie" not in {name.lower() for name in headers} for _, _, headers, _ in seen)


@pytest.mark.parametrize("path", ["../../..", "/a/../../80", "%2E%2e/80", "a/.%2e/%2e./x"])
def test_the_credential_stays_with_the_port(path):
    with serve(lambda *_: (200, {"id": "s"}, {})) as (client, seen):
        sandbox = client.sandboxes.get("s")
        pytest.raises(errors.BadSettings, sandbox.fetch, 80, path)
        assert sandbox.fetch(80, "/a/../b%2Fc%20%2e?d=/../e").status_code == 200
    assert [path for _, path, _, _ in seen] == ["/sandboxes/s", "/sandboxes/s/ports/80/http/b%2Fc%20%2e?d=/../e"]


def events(*given):
    return b"".join(f"id: {i}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode() for i, kind, data in given)


def output(data):
    return {"stream": "stdout", "data": base64.b64encode(data).decode()}


def test_a_command_s_output_goes_on_where_it_broke_off():
    """In the middle of a character."""

    def answer(n, _):
        if n == 1:
            sent = events((0, "start", {"id": "p", "state": "running"}), (2, "output", output(b"a\xc3")))
        else:
            ended = {"id": "p", "state": "exited", "exit_code": 0}
            sent = events((3, "output", output(b"\xa4")), (3, "exit", ended))
        return 200, sent, {"content-type": "text/event-stream"}

    with serve(answer) as (client, seen):
        assert sandgate._sync.commands.Commands(client._http, "s").run("x").stdout == "aä"
    assert [(method, path) for method, path, _, _ in seen] == [
        ("POST", "/sandboxes/s/exec"),
        ("GET", "/sandboxes/s/processes/p/output?encoding=base64&after=2"),
    ]


def test_a_watch_that_broke_off_says_that_changes_may_be_lost_and_goes_on():
    ready = ("", "ready", {"type": "ready", "path": None, "to": None})
    created = ("", "create", {"type": "create", "path": "/a", "to": None})
    over = threading.Event()
    seen = []

    def answer(n, handler):
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(events(ready) if n == 1 else events(ready, created))
        if n > 1:
            over.wait(60)

    with serve(answer) as (client, _):
        watch = sandgate._sync.files.Files(client._http, "s").watch("/", lambda change: seen.append(change.type))
        until(lambda: check(seen == ["overflow", "create"]))
        watch.stop()
        watch.wait(timeout_ms=5_000)
        over.set()


def test_nothing_waits_longer_than_a_minute_for_a_retry(delays):
    with serve(lambda *_: failure("rate_limited", 429, {"retry-after": "61"})) as (client, seen):
        pytest.raises(errors.RateLimited, client.account.get)
    assert len(seen) == 1 and delays == []


def test_no_bytes_of_a_file_are_none_and_not_the_whole():
    with serve(answer_with_a_file) as (client, seen):
        files = sandgate._sync.files.Files(client._http, "s")
        assert files.read("/a", offset=5, length=0) == ""
        assert files.read("/a", length=0, format="bytes") == b""
        assert list(files.read("/a", length=0, format="stream")) == []
    assert {urlsplit(path).path for _, path, _, _ in seen} == {"/sandboxes/s/files/entry"}


def answer_with_a_file(_, handler):
    return 200, {"type": "file"} if "/entry" in handler.path else b"content", {}


def test_a_download_to_where_nothing_can_be_written_leaves_no_connection(tmp_path):
    with serve(answer_with_a_file) as (client, _):
        files = sandgate._sync.files.Files(client._http, "s")
        pytest.raises(FileNotFoundError, files.download, "/a", tmp_path / "missing" / "a")
        connections = client._http._client._transport._pool.connections
        assert all(each.is_idle() for each in connections)


def test_a_download_goes_through_a_link_and_into_a_pipe_or_a_device_as_it_is(tmp_path):
    pipe, file, link = (tmp_path / name for name in ("pipe", "file", "link"))
    os.mkfifo(pipe)
    file.write_text("before")
    link.symlink_to("file")
    with serve(answer_with_a_file) as (client, _):
        files = sandgate._sync.files.Files(client._http, "s")
        reading = []
        reader = threading.Thread(target=lambda: reading.append(pipe.read_bytes()), daemon=True)
        reader.start()
        assert files.download("/a", pipe) == 7
        reader.join(60)
        assert reading == [b"content"] and pipe.is_fifo()
        files.download("/a", link)
    assert link.is_symlink() and file.read_text() == "content"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]


@pytest.mark.parametrize(("limit", "expected"), [(None, "0123456789"), (7, "3456789"), (3, "789")])
def test_logs_have_all_rows_also_when_one_answer_does_not_hold_them(limit, expected):
    text = "x" * 2 * 1024 * 1024
    lines = [
        {"timestamp": f"2026-01-01T00:00:0{n // 2}.000000Z", "stream": "stdout", "log": f"{n}{text}"} for n in range(10)
    ]

    def answer(_, handler):
        query = {name: values[0] for name, values in parse_qs(urlsplit(handler.path).query).items()}
        if "limit" not in query:
            return 200, {"id": "s", "created_at": "2026-01-01"}, {}
        rows = [line for line in lines if line["timestamp"] < query.get("until", "9")]
        return 200, {"logs": rows[-min(int(query["limit"]), 4) :], "metrics": []}, {}

    with serve(answer) as (client, _):
        logs = client.sandboxes.get("s").logs(limit=limit)
        assert "".join(entry.log[0] for entry in logs) == expected


def test_followed_logs_lose_none_of_what_comes_after_the_start_by_a_limit(monkeypatch):
    rows = [
        {"timestamp": f"2026-01-01T00:00:{n:02}.000000Z", "stream": "stdout", "log": f"line {n}"} for n in range(60)
    ]
    opened = []

    def answer(_, handler):
        if "/stream" in handler.path:
            opened.append(handler.path)
            # It breaks off without anything new.
            return 200, b"", {"content-type": "text/event-stream"}
        if "/monitoring/" in handler.path:
            query = {name: values[0] for name, values in parse_qs(urlsplit(handler.path).query).items()}
            there = rows[: 20 * len(opened)]
            since = [row for row in there if row["timestamp"] >= query["since"]]
            return 200, {"logs": since[-int(query["limit"]) :], "metrics": []}, {}
        return 200, {"id": "s", "state": state(), "created_at": "2026-01-01"}, {}

    def state():
        return "ready" if len(opened) < 3 else "stopped"

    monkeypatch.setattr(sandgate._sync.monitoring, "QUIET_SECONDS", 0.01)
    with serve(answer) as (client, _):
        logs = client.sandboxes.get("s").logs(follow=True, limit=5)
        assert [entry.log for entry in logs] == [f"line {n}" for n in range(15, 60)]


def test_followed_logs_go_on_after_the_last_event(monkeypatch):
    def row(n):
        return {"timestamp": f"2026-01-01T00:00:0{n}.000000Z", "stream": "stdout", "log": f"line {n}"}

    streams = [[(f"e{n}", "log", row(n)) for n in (2, 3)], [("e4", "log", row(4))]]
    opened = []

    def answer(_, handler):
        if "/stream" in handler.path:
            opened.append(handler.path)
            return 200, events(*streams[len(opened) - 1]), {"content-type": "text/event-stream"}
        if "/monitoring/" in handler.path:
            # What is there already: rows that the stream brings too.
            return 200, {"logs": [row(n) for n in ((1, 2) if len(opened) == 1 else (4,))], "metrics": []}, {}
        return 200, {"id": "s", "state": "ready" if len(opened) < 2 else "stopped", "created_at": "2026-01-01"}, {}

    monkeypatch.setattr(sandgate._sync.monitoring, "QUIET_SECONDS", 0.01)
    with serve(answer) as (client, seen):
        logs = client.sandboxes.get("s").logs(follow=True)
        assert [entry.log for entry in logs] == [f"line {n}" for n in (1, 2, 3, 4)]
    resumed = [headers.get("last-event-id") for _, path, headers, _ in seen if "/stream" in path]
    assert resumed == [None, "e3"]


def test_followed_logs_go_on_after_an_id_that_came_without_an_event(monkeypatch):
    row = {"timestamp": "2026-01-01T00:00:01.000000Z", "stream": "stdout", "log": "line"}
    streams = [b"id: e0\n\n", events(("e1", "log", row))]
    opened = []

    def answer(_, handler):
        if "/stream" in handler.path:
            opened.append(handler.headers.get("last-event-id"))
            return 200, streams[len(opened) - 1], {"content-type": "text/event-stream"}
        if "/monitoring/" in handler.path:
            return 200, {"logs": [row] if len(opened) == 2 else [], "metrics": []}, {}
        return 200, {"id": "s", "state": "ready" if len(opened) < 2 else "stopped", "created_at": "2026-01-01"}, {}

    monkeypatch.setattr(sandgate._sync.monitoring, "QUIET_SECONDS", 0.01)
    with serve(answer) as (client, _):
        assert [entry.log for entry in client.sandboxes.get("s").logs(follow=True)] == ["line"]
    assert opened == [None, "e0"]
