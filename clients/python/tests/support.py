"""What several tests use."""

import time


def check(holds):
    """As an assertion, where only an expression may stand."""
    assert holds


def until(attempt, seconds=60):
    """Repeats a check until it holds."""
    end = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except AssertionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
