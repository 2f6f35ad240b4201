"""The asynchronous half."""

import asyncio

import pytest

from sandgate import AsyncSandbox, AsyncSandgate, errors


def test_sandboxes_and_what_is_done_in_them(tmp_path):
    asyncio.run(use(tmp_path))


async def use(tmp_path):
    async with await AsyncSandbox.create("default", labels={"kind": "async"}) as sandbox:
        results = await asyncio.gather(*(sandbox.commands.run(f"echo {n}") for n in range(3)))
        assert [result.stdout for result in results] == ["0\n", "1\n", "2\n"]
        assert (await sandbox.commands.run("wc -c", stdin=b"x" * 500_000)).stdout.strip() == "500000"
        await sandbox.files.write("/tmp/a", b"bytes")
        assert await sandbox.files.read("/tmp/a", format="bytes") == b"bytes"
        assert [chunk async for chunk in await sandbox.files.read("/tmp/a", format="stream")] == [b"bytes"]
        assert [found.id async for found in AsyncSandbox.list(labels={"kind": "async"})] == [sandbox.id]
        await use_files(sandbox, tmp_path)
        await use_terminal(sandbox)
        assert isinstance(await sandbox.logs(), list)
        assert [entry async for entry in sandbox.logs()] == await sandbox.logs()
        # A task that is cancelled ends its command.
        begun = asyncio.Event()
        task = asyncio.create_task(sandbox.commands.run("echo begun; exec sleep 1003", on_stdout=lambda _: begun.set()))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() and await sandbox.commands.list(state="running") == []
        # Many streams at once.
        sleepers = [await sandbox.commands.start("read line; echo $line", stdin_open=True) for _ in range(20)]
        followed = [asyncio.create_task(collect(process)) for process in sleepers]
        for n, process in enumerate(sleepers):
            await process.write(f"{n}\n")
        assert await asyncio.gather(*followed) == [f"{n}\n" for n in range(20)]


async def collect(process):
    return "".join([chunk.data async for chunk in process.output])


async def use_files(sandbox, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("text")
    await sandbox.files.upload(tmp_path / "sub" / "a.txt", "/tmp/b.txt")
    await sandbox.files.upload(tmp_path, "/tmp/folder")
    assert await sandbox.files.read("/tmp/folder/sub/a.txt") == "text"
    assert await sandbox.files.download("/tmp/folder", tmp_path / "again") == 4
    assert await sandbox.files.download("/tmp/b.txt", tmp_path / "b.txt") == 4

    async def chunks():
        yield b"in "
        yield b"chunks"

    await sandbox.files.write("/tmp/c.txt", chunks())
    assert await sandbox.files.read("/tmp/c.txt") == "in chunks"
    changed = asyncio.Event()
    watch = await sandbox.files.watch("/tmp", lambda change: changed.set())
    await sandbox.files.write("/tmp/watched", "1")
    await asyncio.wait_for(changed.wait(), 30)
    await watch.stop()


async def use_terminal(sandbox):
    shown = []
    terminal = await sandbox.pty.create(on_data=shown.append)
    await terminal.write("stty size; exit 4\n")
    assert (await terminal.wait(timeout_ms=30_000)).exit_code == 4
    assert b"24 80" in b"".join(shown)
    closed = await sandbox.pty.create(command=["cat"])
    with pytest.raises(errors.TimedOut):
        await closed.wait(timeout_ms=100)
    await closed.close()
    await closed.kill()


def test_followed_logs_end_with_the_sandbox():
    asyncio.run(follow_logs())


async def follow_logs():
    lines = "trap exit TERM; httpd -p 8080 -h /www; for i in $(seq 1 20); do echo line $i; sleep 0.05; done; sleep 3600 & wait"
    sandbox = await AsyncSandbox.create("default", command=["sh", "-c", lines])
    seen = []
    async for entry in sandbox.logs(follow=True):
        seen.append(entry.log)
        if entry.log == "line 20":
            await sandbox.stop()
    assert seen == [f"line {i + 1}" for i in range(20)]
    await sandbox.close()


def test_a_client_for_all_else():
    asyncio.run(use_client())


async def use_client():
    async with AsyncSandgate() as client:
        assert "default" in [image.name async for image in client.images.list()]
        sandbox = await client.sandboxes.create("default")
        assert (await client.sandboxes.get(sandbox.id)).state == "ready"
        # It belongs to the client, which goes on.
        async with sandbox:
            pass
        assert (await client.account.get()).credential == "api_token"
