"""A short use of both halves, for each Python that there is."""

import asyncio

from sandgate import AsyncSandbox, CommandFailed, Sandbox

with Sandbox.create("default") as sandbox:
    assert sandbox.commands.run("echo sync").stdout == "sync\n"
    try:
        sandbox.commands.run("exit 3", check=True)
    except CommandFailed as error:
        assert error.exit_code == 3
    sandbox.files.write("/tmp/a", "text")
    assert sandbox.files.read("/tmp/a") == "text"
    watch = sandbox.files.watch("/tmp", print)
    watch.stop()
    watch.wait(timeout_ms=5_000)
    shown = []
    terminal = sandbox.pty.create(command="tty && exit 4", on_data=shown.append)
    assert terminal.wait().exit_code == 4 and b"/dev/pts" in b"".join(shown)
    assert isinstance(sandbox.logs(), list)

    async def use() -> None:
        other = await AsyncSandbox.connect(sandbox.id)
        results = await asyncio.gather(*(other.commands.run(f"echo {n}") for n in range(3)))
        assert [result.stdout for result in results] == ["0\n", "1\n", "2\n"]
        watch = await other.files.watch("/tmp", print)
        await watch.stop()
        terminal = await other.pty.create(command="exit 5")
        assert (await terminal.wait()).exit_code == 5
        assert isinstance(await other.logs(), list)
        await other.close()

    asyncio.run(use())
print("all is well")
