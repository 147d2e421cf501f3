"""Pieces of Python, and faultrun itself, in a process of their own where it must not be the test's."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

Done = subprocess.CompletedProcess[str]


def ended(
    code: str, *arguments: str, timeout_s: float = 60, environ: Mapping[str, str] | None = None
) -> Done:
    """Run ``code`` to its end with what it printed; its exit code is not judged."""
    words = (sys.executable, "-c", code, *arguments)
    return _run(words, timeout_s=timeout_s, environ=environ, start_new_session=True)


def printed(code: str, *arguments: str, environ: Mapping[str, str] | None = None) -> str:
    """What ``code`` printed; it must have ended well."""
    done = ended(code, *arguments, environ=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def faultrun(
    *words: str,
    before: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
) -> Done:
    """``faultrun WORDS`` behind the words of ``before``, to its end; its exit code is not judged."""
    command = (*before, sys.executable, "-m", "faultrun", *words)
    return _run(command, timeout_s=60, environ=environ, cwd=cwd, stdin=stdin)


def _run(
    words: tuple[str, ...],
    *,
    timeout_s: float,
    environ: Mapping[str, str] | None,
    cwd: Path | None = None,
    stdin: str = "",
    start_new_session: bool = False,
) -> Done:
    return subprocess.run(
        words,
        env=environ,
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        start_new_session=start_new_session,
    )
