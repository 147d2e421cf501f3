"""What a worker left behind: the end of its log, read by seeking, and its own death note.

The note is the file named by ``TORCHELASTIC_ERROR_FILE``: torch's ``@record`` writes it, and so does the hook
of our SDK. Format: torch/distributed/elastic/multiprocessing/errors/error_handler.py.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from faultrun.core.diagnosis.signatures import recognise
from faultrun.core.diagnosis.tracebacks import gist, last_raised, telling_line
from faultrun.core.logged_steps import LoggedStep, last_step
from faultrun.files import bytes_from
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.observed.evidence import DeathNote, Raised, Row

_TAIL_BYTES, _NOTE_BYTES = 65536, 1 << 20
_LINE_CHARS = 500
_ASKED_LINES = 200
_ABORTED = Signaled(signum=6)

RunSeconds = Callable[[int], float]
"""Run-seconds of a file's modification time in wall-clock nanoseconds."""


def death_note(
    rank: int,
    logs: Sequence[Path],
    error_file: Path | None = None,
    status: ExitStatus | None = None,
    rows: Sequence[Row] = (),
    run_seconds: RunSeconds | None = None,
    step_pattern: str = "",
) -> DeathNote:
    """The line that tells most, the last step, the exception and what the table says of all that.

    ``logs`` are parts of one log, the oldest first. Without ``status`` nothing is judged.
    """
    text = "".join(tail(log) for log in logs)[-_TAIL_BYTES:]
    said = [line.rstrip() for line in text.splitlines() if line.strip()]
    told = last_step(said, step_pattern) or LoggedStep()
    raised = None
    if isinstance(status, Exited) and status.code:
        raised = error_note(error_file, run_seconds) or last_raised(said)
    elif status == _ABORTED:
        # Threads of gloo or HCCL may abort an interpreter that is torn down, after its exception.
        raised = error_note(error_file, run_seconds)
    return DeathNote(
        rank=rank,
        last_line=telling_line(said[-_ASKED_LINES:], raised)[:_LINE_CHARS],
        logged_step=told.step,
        logged_epoch=told.epoch,
        logged_in_epoch=told.in_epoch,
        logged_every=told.every if told != LoggedStep() else 1,
        raised=raised,
        finding=recognise(rows, status, raised, said[-_ASKED_LINES:]) if status is not None else None,
    )


def error_note(path: Path | None, run_seconds: RunSeconds | None) -> Raised | None:
    """The exception that the worker wrote down itself; None without a note, or with one that cannot be read.

    The note's own time counts whole seconds; the file's is exact.
    """
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            changed_ns = os.fstat(file.fileno()).st_mtime_ns
            content: Any = json.loads(file.read(_NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    message = content.get("message") if isinstance(content, dict) else None
    if isinstance(message, str):
        message = {"message": message}
    if not isinstance(message, dict):
        return None
    extra = message.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    traced = last_raised(stack.splitlines()) if isinstance(stack, str) else None
    found = extra.get("refused") if isinstance(extra, dict) else None
    refused = found if isinstance(found, dict) else {}
    kind, _, text = str(message.get("message", "")).partition(":")
    return Raised(
        kind=traced.kind if traced is not None else kind.strip()[:_LINE_CHARS],
        message=gist(text),
        frame=traced.frame if traced is not None else "",
        came_from=traced.came_from if traced is not None else (),
        at_s=run_seconds(changed_ns) if run_seconds is not None else None,
        because=str(refused.get("because", ""))[:_LINE_CHARS],
        hint=str(refused.get("try", ""))[:_LINE_CHARS],
    )


def tail(log: Path) -> str:
    """The last 64 KiB of a log of any size; empty when it is not there."""
    return bytes_from(log, -_TAIL_BYTES, _TAIL_BYTES).decode("utf-8", "replace")
