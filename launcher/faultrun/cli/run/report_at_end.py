"""The report at the end of a run: another process makes it, and is waited for a little."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from faultrun.model.spec import TERMINATION_VARIABLE, RunSpec
from faultrun.workers.forked import Forked

_PATIENCE_S = 20.0
_PATIENCE_AFTER_STOP_S = 3.0
_INIT_PID = 1
_LONGEST = 4096


def report_at_end(spec: RunSpec, log_dir: Path, say: Callable[[str], None], *, stopped: bool) -> None:
    """Write it if it is wanted. Whoever told us to stop may have little patience left.

    Forked, not executed: Python is there already, and no module of the working directory gets in its way.
    """
    if not spec.view.report:
        return
    if stopped and _clock_runs(spec):
        say(f"no time for a report: faultrun report --log_dir {log_dir}")
        return
    said = b""
    with suppress(OSError):
        said = _said_by_child(log_dir, _PATIENCE_AFTER_STOP_S if stopped else _PATIENCE_S)
    if said:
        say(f"{said.decode(errors='replace')}; {log_dir / 'report.html'}")
    else:
        say(f"no report yet: faultrun report --log_dir {log_dir}")


def _clock_runs(spec: RunSpec) -> bool:
    """Whether a platform kills what is left when its period is over: all of that is for the save."""
    told = os.environ.get(TERMINATION_VARIABLE, "")
    return os.getpid() == _INIT_PID or spec.supervision.windows.stop_by_utc_s is not None or bool(told)


def _said_by_child(log_dir: Path, patience_s: float) -> bytes:
    """The run in one line; empty when there was no report within ``patience_s``."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    writer = Forked(lambda: os.write(write_end, _write_report(log_dir)[:_LONGEST]), keep=(write_end,))
    os.close(write_end)
    writer.end(patience_s)
    with os.fdopen(read_end, "rb") as told:
        return told.read(_LONGEST)


def _write_report(log_dir: Path) -> bytes:
    from faultrun.cli.report import HTML, account_of, summary, write
    from faultrun.journal.logdir import read_record
    from faultrun.observe.report.document import document

    account = account_of(log_dir)
    data = document(account, read_record(log_dir))
    write(log_dir, log_dir / HTML, data, account)
    return summary(data).encode()
