"""What users do with the client, in both halves. It is given nothing but environment variables."""

import asyncio
import base64
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar
from urllib.request import urlopen

import sandgate
from sandgate import AsyncSandbox, AsyncSandgate, CommandFailed, CommandTimedOut, Sandbox, Sandgate, errors


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind} was not raised")


def check_sync():
    states = []
    labels = {"kind": "sync"}
    with Sandbox.create(
        "default",
        name="of-python",
        labels=labels,
        ttl_seconds=900,
        on_progress=lambda record: states.append(record.state),
    ) as sandbox:
        assert sandbox.state == "ready" and states[-1] == "ready", states
        assert Sandbox.connect("of-python").id == sandbox.id
        assert [found.id for found in Sandbox.list(labels=labels)] == [sandbox.id]
        before = sandbox.record.expires_at
        assert sandbox.extend(1800).expires_at > before

        seen = []
        result = sandbox.commands.run(
            'echo "$A in $PWD"; cat; echo bad >&2; exit 3',
            cwd="/tmp",
            env={"A": "ä"},
            stdin="typed",
            on_stdout=seen.append,
        )
        assert (result.stdout, result.stderr, result.exit_code) == ("ä in /tmp\ntyped", "bad\n", 3), result
        assert "".join(seen) == result.stdout and result.lost_bytes == 0
        failed = raised(CommandFailed, lambda: sandbox.commands.run(["sh", "-c", "echo out; exit 7"], check=True))
        assert (failed.exit_code, failed.stdout, failed.code) == (7, "out\n", "command_failed")
        slow = raised(CommandTimedOut, lambda: sandbox.commands.run("echo begun; sleep 1000", timeout_ms=1000))
        assert slow.stdout == "begun\n"
        raised(KeyError, lambda: sandbox.commands.run("echo x; exec sleep 1001", on_stdout=lambda _: {}["missing"]))
        assert sandbox.commands.list(state="running") == []

        process = sandbox.commands.start(["cat"], stdin_open=True, tag="echo")
        process.write("typed")
        process.close_stdin()
        assert "".join(chunk.data for chunk in process.output) == "typed"
        assert process.wait().exit_code == 0
        again = sandbox.commands.connect(process.id)
        assert [chunk.data for chunk in again.follow(after=2)] == ["ped"]
        sleeper = sandbox.commands.start("exec sleep 1002")
        raised(errors.TimedOut, lambda: sleeper.wait(timeout_ms=500))
        sleeper.kill()
        assert sleeper.wait().signal == "SIGTERM"

        files = sandbox.files
        files.write("/tmp/f/a.txt", "text", parents=True, mode=0o600)
        stat = files.stat("/tmp/f/a.txt")
        assert (stat.mode, stat.size) == ("0600", 4) and stat.etag
        data = os.urandom(60_000)
        files.write("/tmp/f/b.bin", data)
        assert files.read("/tmp/f/b.bin", format="bytes") == data
        assert files.read("/tmp/f/b.bin", format="bytes", offset=10, length=5) == data[10:15]
        assert files.read("/tmp/f/a.txt") == "text"
        assert [entry.name for entry in files.list("/tmp/f")] == ["a.txt", "b.bin"]
        raised(errors.SandgateError, lambda: files.write("/tmp/f/a.txt", "other", is_new=True))
        files.rename("/tmp/f/a.txt", "/tmp/f/c.txt")
        assert files.chmod("/tmp/f/c.txt", "0640").mode == "0640"
        files.make_dir("/tmp/f/d/e", parents=True)
        assert files.exists("/tmp/f/d/e") and not files.exists("/tmp/f/a.txt")
        files.remove("/tmp/f", recursive=True)
        assert not files.exists("/tmp/f")

        preview = sandbox.ports.open(3000, ttl_seconds=600)
        assert preview.url and preview.token
        assert [each.id for each in sandbox.ports.list()] == [preview.id]
        assert "sandgate_link=" in sandbox.ports.link(preview.id).url
        sandbox.ports.close(preview.id)
        assert sandbox.ports.list() == []
        assert isinstance(sandbox.logs(limit=5), list) and isinstance(sandbox.metrics(limit=5), list)
        missing = raised(errors.SandboxNotFound, lambda: Sandbox.connect("no-such-sandbox"))
        assert missing.status == 404 and missing.request_id and not missing.retryable
    assert Sandbox.connect(sandbox.id).state in ("stopping", "stopped")


def check_resources():
    with Sandgate(token=os.environ["SESSION_TOKEN"]) as client:
        made = client.api_tokens.create(description="from python")
        assert made.id in [each.id for each in client.api_tokens.list()]
        client.api_tokens.delete(made.id)
        assert made.id not in [each.id for each in client.api_tokens.list()]
        own = client.workspaces.create(name="of python")
        assert client.workspaces.update(own.id, name="renamed").name == "renamed"
        assert client.workspaces.get(own.id).name == "renamed"
        client.workspaces.delete(own.id)
        raised(errors.SandgateError, lambda: client.workspaces.get(own.id))
        assert "default" in [image.name for image in client.images.list(limit=1)]
        assert list(client.registries.list()) == []
        assert len(list(client.members.list())) == 1
        assert next(client.audit_log.list()).action
        assert client.account.get().username


def check_codes():
    """Each code of the API has its class."""
    with urlopen(os.environ["SANDGATE_URL"] + "/openapi.json") as answer:
        code = json.load(answer)["components"]["schemas"]["ErrorBody"]["properties"]["code"]
    assert set(errors.classes) == set(code["enum"]), set(errors.classes) ^ set(code["enum"])
    assert all(kind.__name__ in sandgate.__all__ for kind in errors.classes.values())


class Flaky(BaseHTTPRequestHandler):
    """Fails once, and fails signals always."""

    seen: ClassVar[list] = []

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        Flaky.seen.append((self.path, self.headers["idempotency-key"]))
        first = len(Flaky.seen) == 1
        error = {"error": {"code": "internal_error", "message": "down", "retryable": True}}
        answer = json.dumps(error if first or self.path.endswith("signal") else {"id": "made"}).encode()
        self.send_response(500 if first or self.path.endswith("signal") else 201)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def check_retries():
    server = HTTPServer(("127.0.0.1", 0), Flaky)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Sandgate(
        url=f"http://127.0.0.1:{server.server_port}", token="t", workspace="00000000-0000-4000-8000-000000000000"
    ) as client:
        assert client.images.create(name="x").id == "made"
        (_, first), (_, second) = Flaky.seen
        assert first == second is not None
        process = sandgate._sync.commands.Process(client._http, "s", sandgate.Record(id="p"))
        raised(errors.InternalError, lambda: process.signal("SIGINT"))
        assert len(Flaky.seen) == 3, Flaky.seen
    server.shutdown()


class Broken(BaseHTTPRequestHandler):
    """Breaks a command's stream off after its first output, in the middle of a character."""

    seen: ClassVar[list] = []

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.stream([("0", "start", {"id": "p", "state": "running"}), ("2", "output", output(b"a\xc3"))])

    def do_GET(self):
        ended = {"id": "p", "state": "exited", "exit_code": 0}
        self.stream([("3", "output", output(b"\xa4")), ("3", "exit", ended)])

    def stream(self, events):
        Broken.seen.append(f"{self.command} {self.path}")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for id, event, data in events:
            self.wfile.write(f"id: {id}\nevent: {event}\ndata: {json.dumps(data)}\n\n".encode())

    def log_message(self, *_):
        pass


def output(data):
    return {"stream": "stdout", "data": base64.b64encode(data).decode()}


def check_resumption():
    server = HTTPServer(("127.0.0.1", 0), Broken)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    http = sandgate._sync.http.Http(
        f"http://127.0.0.1:{server.server_port}", "t", "00000000-0000-4000-8000-000000000000"
    )
    assert sandgate._sync.commands.Commands(http, "s").run("x").stdout == "aä"
    assert Broken.seen == ["POST /sandboxes/s/exec", "GET /sandboxes/s/processes/p/output?encoding=base64&after=2"]
    http.close()
    server.shutdown()


async def check_async():
    async with await AsyncSandbox.create("default", labels={"kind": "async"}) as sandbox:
        results = await asyncio.gather(*(sandbox.commands.run(f"echo {n}") for n in range(3)))
        assert [result.stdout for result in results] == ["0\n", "1\n", "2\n"]
        await sandbox.files.write("/tmp/a", b"bytes")
        assert await sandbox.files.read("/tmp/a", format="bytes") == b"bytes"
        assert [found.id async for found in AsyncSandbox.list(labels={"kind": "async"})] == [sandbox.id]
        # A task that is cancelled ends its command.
        begun = asyncio.Event()
        task = asyncio.create_task(sandbox.commands.run("echo begun; exec sleep 1003", on_stdout=lambda _: begun.set()))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() and await sandbox.commands.list(state="running") == []
    async with AsyncSandgate() as client:
        assert "default" in [image.name async for image in client.images.list()]


check_codes()
check_retries()
check_resumption()
check_sync()
check_resources()
asyncio.run(check_async())
print("all is well")
