"""What a type checker sees of the client. It is checked, and not run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator

from typing_extensions import assert_type

from sandgate import AsyncSandbox, AsyncSandgate, Sandbox, Sandgate, SandgateError
from sandgate.records import ApiToken, CreatedApiToken, Entry, Image, LogEntry, MetricPoint, PullProgress, SandboxState


def use_sync() -> None:
    with Sandbox.create("default", labels={"a": "b"}, url="http://127.0.0.1", max_retries=1) as sandbox:
        assert_type(sandbox.state, SandboxState)
        assert_type(sandbox.record.timeline[0].at, str)
        assert_type(sandbox.record.pull, PullProgress | None)
        assert_type(sandbox.commands.run(["ls"], on_stdout=print).exit_code, int)
        assert_type(sandbox.files.read("a"), str)
        assert_type(sandbox.files.read("a", format="bytes"), bytes)
        assert_type(sandbox.files.read("a", format="stream"), Iterator[bytes])
        assert_type(sandbox.files.write("a", b"", mode=0o644), Entry)
        assert_type(sandbox.files.stat("a").etag, str | None)
        assert_type(sandbox.logs(), list[LogEntry])
        assert_type(sandbox.logs(follow=True), Generator[LogEntry, None, None])
        assert_type(sandbox.metrics(), list[MetricPoint])
        assert_type(sandbox.ports.open(3000).token, str)
        sandbox.files.watch("a", lambda change: print(change.type, change.path, change.to)).stop()
        sandbox.pty.create(on_data=lambda data: print(data.decode())).resize(80, 24)
        print(sandbox.record.misspelled)  # type: ignore[attr-defined]
        sandbox.files.read("a", format="lines")  # type: ignore[call-overload]
        Sandbox.connect("a", uri="b")  # type: ignore[call-arg]
    with Sandgate.sign_in(username="a", password="b", otp="c", on_refresh=lambda tokens: None) as client:
        assert_type(list(client.api_tokens.list()), list[ApiToken])
        assert_type(client.api_tokens.create(description="a", permissions=["read"]), CreatedApiToken)
        client.api_tokens.create(permissions=["read"])  # type: ignore[call-arg]
        client.images.update("a", memory_mb="large")  # type: ignore[arg-type]
        assert_type(client.members.create(username="a", role="admin").joined_at, str)


async def use_async() -> None:
    async with await AsyncSandbox.create("default") as sandbox:
        assert_type((await sandbox.commands.run("ls")).stdout, str)
        assert_type(await sandbox.files.read("a", format="stream"), AsyncIterator[bytes])
        assert_type(await sandbox.logs(), list[LogEntry])
        assert_type(sandbox.logs(follow=True), AsyncGenerator[LogEntry, None])
        async for chunk in (await sandbox.commands.start("ls")).output:
            assert_type(chunk.data, str)
    async with AsyncSandgate(token=provide) as client:
        assert_type([image async for image in client.images.list()], list[Image])
        try:
            await client.account.get(timeout_ms=1_000)
        except SandgateError as error:
            assert_type(error.request_id, str | None)


async def provide(refused: str | None) -> str | None:
    return "new" if refused else "old"
