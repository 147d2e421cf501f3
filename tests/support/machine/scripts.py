"""Pieces of Python, and faultrun itself, in a process of their own where it must not be the test's."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Done = subprocess.CompletedProcess[str]
Environ = Mapping[str, str]


def ended(code: str, *arguments: str, timeout_s: float = 60, environ: Environ | None = None) -> Done:
    """Run ``code`` to its end with what it printed; its exit code is not judged."""
    words = (sys.executable, "-c", code, *arguments)
    return _ended(words, timeout=timeout_s, env=environ, start_new_session=True)


def printed(code: str, *arguments: str, environ: Environ | None = None) -> str:
    """What ``code`` printed; it must have ended well."""
    done = ended(code, *arguments, environ=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def faultrun(
    *words: str,
    before: tuple[str, ...] = (),
    environ: Environ | None = None,
    cwd: Path | None = None,
    stdin: str = "",
) -> Done:
    """``faultrun WORDS`` behind the words of ``before``, to its end; its exit code is not judged."""
    command = (*before, sys.executable, "-m", "faultrun", *words)
    return _ended(command, timeout=60, env=environ, cwd=cwd, input=stdin)


def _ended(words: tuple[str, ...], **how: Any) -> Done:
    return subprocess.run(words, capture_output=True, text=True, check=False, **how)
