"""What several tests use."""

import time


def until(check, seconds=60):
    """Repeats a check until it holds."""
    end = time.monotonic() + seconds
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
