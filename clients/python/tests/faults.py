"""Uses sandboxes over a network that cuts, delays and repeats: nothing is doubled, and nothing is lost. Its first argument
says how many. It prints their ids."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from sandgate import Sandbox, Sandgate

count = int(sys.argv[1])
lines = "".join(f"line {n}\n" for n in range(1, 501))
# As many tries as a rate of one in four calls for.
retries = 12


def use(client: Sandgate, i: int) -> str:
    sandbox = client.sandboxes.create("default", labels={"run": "faults"})
    command = f"echo {i} >> /tmp/runs; cat; for i in $(seq 1 500); do echo line $i; done; echo end >&2; exit 3"
    result = sandbox.commands.run(command, stdin=f"input {i}\n")
    assert (result.stdout, result.stderr, result.exit_code) == (f"input {i}\n{lines}", "end\n", 3), result
    assert result.lost_bytes == 0
    process = sandbox.commands.start(["cat"], stdin_open=True)
    for word in ("a", "b", "c\n"):
        process.write(word)
    process.close_stdin()
    assert "".join(chunk.data for chunk in process.output) == "abc\n"
    shown: list[bytes] = []
    terminal = sandbox.pty.create(command="stty -echo; echo ready; read a; echo got $a", on_data=shown.append)
    terminal.write("typed\n")
    assert terminal.wait().exit_code == 0
    assert b"".join(shown).count(b"got typed\r\n") == 1, shown
    sandbox.files.write("/tmp/folder/a.txt", lines, parents=True)
    assert sandbox.files.read("/tmp/folder/a.txt") == lines
    assert sandbox.files.read("/tmp/runs") == f"{i}\n"
    assert len(sandbox.commands.list()) == 3
    sandbox.stop()
    return sandbox.id


def follow() -> None:
    script = "httpd -p 8080 -h /www; for i in $(seq 1 200); do echo line $i; sleep 0.05; done; sleep 3600"
    with Sandbox.create("default", command=["sh", "-c", script], max_retries=retries) as sandbox:
        seen = []
        for entry in sandbox.logs(follow=True):
            seen.append(entry.log)
            if entry.log == "line 200":
                break
        assert seen == [f"line {n}" for n in range(1, 201)], seen


with Sandgate(max_retries=retries) as client, ThreadPoolExecutor(8) as pool:
    followed = pool.submit(follow)
    ids = list(pool.map(lambda i: use(client, i), range(count)))
    followed.result()
print(json.dumps(ids))
