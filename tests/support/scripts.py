"""Pieces of Python run by a process of their own, where it must not be the process of the test."""

import subprocess
import sys


def ended(code: str, *arguments: str, timeout_s: float = 20) -> "subprocess.CompletedProcess[str]":
    """Run ``code`` to its end with what it printed; its exit code is not judged."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        start_new_session=True,
    )


def printed(code: str, *arguments: str) -> str:
    """What ``code`` printed; it must have ended well."""
    done = ended(code, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout
