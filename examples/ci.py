"""Runs the tests of a pull request that nobody has read yet: python ci.py FOLDER COMMAND [SECONDS]

The folder goes into a sandbox of its own, nothing of this machine or its environment does, and nothing comes out but
output and the exit code, which this program ends with; 124 when the time is up.
"""

import signal
import sys

from sandgate import CommandTimedOut, Sandbox

def main(folder: str, command: str, limit_seconds: int = 600) -> int:
    # A job that is cancelled stops its sandbox, too. If this program is killed, the sandbox ends after `ttl_seconds`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Sandbox.create("python", labels={"purpose": "ci"}, ttl_seconds=limit_seconds + 300) as sandbox:
        sandbox.files.upload(folder, "/tmp/work")
        try:
            result = sandbox.commands.run(
                command,
                cwd="/tmp/work",
                env={"CI": "true"},
                timeout_ms=limit_seconds * 1000,
                on_stdout=lambda text: print(text, end="", flush=True),
                on_stderr=lambda text: print(text, end="", flush=True, file=sys.stderr),
            )
        except CommandTimedOut:
            print(f"The tests were ended after {limit_seconds} s.", file=sys.stderr)
            return 124
        return result.exit_code


if len(sys.argv) not in (3, 4):
    sys.exit("usage: python ci.py FOLDER COMMAND [SECONDS]")
sys.exit(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
