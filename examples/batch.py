"""A hundred jobs in a few sandboxes: each sandbox takes the next job until none is left."""

import asyncio
import sys
from collections import deque

from sandgate import AsyncSandbox, CommandFailed, CommandTimedOut

SANDBOXES_AT_ONCE = 8
JOB_TIMEOUT_MS = 60_000
# Two of these fail: they divide by zero.
JOBS = {f"job {n}": ["python3", "-c", f"print(100 // ({n} % 50))"] for n in range(100)}


async def work(waiting: deque, printed: dict, failed: dict) -> None:
    async with await AsyncSandbox.create("python", labels={"purpose": "batch"}, ttl_seconds=3600) as sandbox:
        while waiting:
            name, command = waiting.popleft()
            # Unless it gets to an end.
            failed[name] = "not run"
            try:
                result = await sandbox.commands.run(command, timeout_ms=JOB_TIMEOUT_MS, check=True)
            except CommandTimedOut:
                failed[name] = "took too long"
            except CommandFailed as error:
                failed[name] = f"exit code {error.exit_code}: {error.stderr.strip().splitlines()[-1]}"
            else:
                printed[name] = result.stdout
                del failed[name]


async def main() -> int:
    waiting, printed, failed = deque(JOBS.items()), {}, {}
    workers = (work(waiting, printed, failed) for _ in range(SANDBOXES_AT_ONCE))
    # A sandbox that the quota doesn't allow, or that ends early, leaves its jobs to the others.
    for error in await asyncio.gather(*workers, return_exceptions=True):
        if error is not None:
            print(f"One sandbox fewer: {error}", file=sys.stderr)
    failed.update((name, "not run") for name, _ in waiting)
    for name, reason in failed.items():
        print(f"{name}: {reason}", file=sys.stderr)
    total = sum(map(int, printed.values()))
    print(f"{len(printed)} of {len(JOBS)} jobs succeeded; the sum of what they printed is {total}.")
    return 1 if failed else 0


sys.exit(asyncio.run(main()))
