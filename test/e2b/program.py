"""A program on the package e2b, as a user writes it. It is given nothing but environment variables."""

import asyncio

from e2b import AsyncSandbox, CommandExitException, NotFoundException, Sandbox, SandboxNotFoundException, TimeoutException


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind} was not raised")


def run_sync():
    sandbox = Sandbox.create(metadata={"kind": "sync"}, envs={"COLOUR": "blue"}, timeout=120)
    try:
        assert sandbox.commands.run("echo $COLOUR").stdout == "blue\n"
        assert raised(CommandExitException, lambda: sandbox.commands.run("exit 3")).exit_code == 3
        raised(TimeoutException, lambda: sandbox.commands.run("sleep 60", timeout=1))
        assert sandbox.files.write("notes/one", "first").path == "/root/notes/one"
        assert sandbox.files.read("notes/one") == "first"
        assert sandbox.files.read("notes/one", format="bytes") == b"first"
        assert [entry.name for entry in sandbox.files.list("notes")] == ["one"]
        raised(NotFoundException, lambda: sandbox.files.read("/no/such"))
        background = sandbox.commands.run("cat", background=True, stdin=True)
        sandbox.commands.send_stdin(background.pid, "typed\n")
        assert background.pid in [process.pid for process in sandbox.commands.list()]
        assert sandbox.commands.kill(background.pid) is True
        # A kill answers once the signal is sent, which is before the end.
        raised(CommandExitException, background.wait)
        assert sandbox.commands.kill(background.pid) is False
        sandbox.files.make_dir("/tmp/watched/below")
        watch = sandbox.files.watch_dir("/tmp/watched", recursive=True)
        assert watch.get_new_events() == []
        sandbox.files.write("/tmp/watched/below/new", "text")
        sandbox.commands.run("cd /tmp/watched && mv below/new moved && rm moved")
        told = [(event.type.value, event.name) for event in watch.get_new_events()]
        assert told == [
            ("create", "below/new"),
            ("write", "below/new"),
            ("rename", "below/new"),
            ("create", "moved"),
            ("remove", "moved"),
        ], told
        assert watch.get_new_events() == []
        watch.stop()
        raised(NotFoundException, lambda: sandbox.files.watch_dir("/no/such"))
        sandbox.commands.run("chown ada:ada /home/ada")
        assert sandbox.files.write("one", "x", user="ada").path == "/home/ada/one"
        assert sandbox.files.get_info("/home/ada/one").owner == "ada"
        info = sandbox.get_info()
        assert info.metadata == {"kind": "sync"}
        assert (info.end_at - info.started_at).total_seconds() == 120
        again = Sandbox.connect(sandbox.sandbox_id)
        assert again.commands.run("echo again").stdout == "again\n"
        assert sandbox.is_running() is True
    finally:
        assert sandbox.kill() is True
    assert sandbox.is_running() is False
    raised(SandboxNotFoundException, lambda: Sandbox.connect(sandbox.sandbox_id))


async def run_async():
    sandbox = await AsyncSandbox.create()
    try:
        seen = []
        result = await sandbox.commands.run("echo out; echo err >&2", on_stdout=seen.append)
        assert (result.stdout, result.stderr) == ("out\n", "err\n")
        assert "".join(seen) == "out\n"
        await sandbox.files.make_dir("/tmp/watched")
        events = []
        watch = await sandbox.files.watch_dir("/tmp/watched", on_event=lambda event: events.append(event.name))
        await sandbox.files.write("/tmp/watched/new", "text")
        for _ in range(100):
            if "new" in events:
                break
            await asyncio.sleep(0.1)
        assert "new" in events, events
        await watch.stop()
        shown = bytearray()

        async def show(data):
            shown.extend(data)

        terminal = await sandbox.pty.create(size=size(), on_data=show)
        await sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
        await terminal.wait()
        assert b"24 80" in shown, shown
    finally:
        await sandbox.kill()


def size():
    from e2b import PtySize

    return PtySize(rows=24, cols=80)


run_sync()
asyncio.run(run_async())
print("all is well")
