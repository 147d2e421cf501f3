"""The report at the end of a run: another process makes it, and is waited for a little."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from faultrun.model.spec import RunSpec

_PATIENCE_S = 20.0
_PATIENCE_AFTER_STOP_S = 3.0
_STOPPED = frozenset({129, 130, 143})


def report_at_end(spec: RunSpec, log_dir: Path, exit_code: int, say: Callable[[str], None]) -> None:
    """Write it if it is wanted. Whoever told us to stop may have little patience left."""
    if not spec.view.report:
        return
    patience_s = _PATIENCE_AFTER_STOP_S if exit_code in _STOPPED else _PATIENCE_S
    try:
        done = subprocess.run(
            [sys.executable, "-m", "faultrun", "report", "--log_dir", str(log_dir)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=patience_s,
            check=True,
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError):
        say(f"no report yet: faultrun report --log_dir {log_dir}")
        return
    with suppress(IndexError):
        say(f"{done.stdout.decode(errors='replace').splitlines()[0]}; {log_dir / 'report.html'}")
