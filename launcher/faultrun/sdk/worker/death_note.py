"""What a worker leaves to know it by: its stacks when it is asked, and the exception that it died of.

torch's elastic launchers read ``TORCHELASTIC_ERROR_FILE``; faultrun reads it as the worker's own death note.
"""

import contextlib
import faulthandler
import json
import os
import re
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

from faultrun.errors import CannotNow, FaultrunError, OutOfRoom
from faultrun.model.wire import STACKS_FILE, STACKS_SIGNAL, THREADS_FILE
from faultrun.sdk.own_file import OwnFile, out_of_the_way
from faultrun.sdk.session import Session

_PEER = re.compile(
    r"(?i)connection (?:reset|closed|refused|aborted)|closed by peer|broken pipe|gloo|[nhml]ccl|process group"
    r"|heartbeat|all_?reduce|all_?gather|reduce_?scatter|remote process|timed out"
)


def tells_of_a_dead_peer(error: BaseException) -> bool:
    """Whether ``error`` looks like what a collective raises once another rank is gone.

    Connection errors and timeouts do, and errors of torch.distributed; others
    by the words of their message. Causes and contexts are looked at too.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if isinstance(one, ConnectionError | TimeoutError):
            return True
        if any(kind.__name__ in ("DistError", "DistBackendError") for kind in type(one).__mro__):
            return True
        if isinstance(one, RuntimeError | OSError) and _PEER.search(str(one)):
            return True
        one = one.__cause__ or one.__context__
    return False


def write_note(path: str, error: BaseException, died_at_utc: float) -> None:
    """Leave ``error`` in torch's format, unless a note is there already.

    ``{"message": {"message", "extraInfo": {"py_callstack", "timestamp"}}}``
    as torch/distributed/elastic/multiprocessing/errors/error_handler.py writes it; the time is in seconds.
    A refusal of ours has its ``because`` and ``try`` under ``refused`` beside them.
    """
    refused = _refusal_in(error)
    words = {} if refused is None else {"refused": {"because": refused.because, "try": refused.hint}}
    note = {
        "message": {
            "message": f"{type(error).__name__}: {error}",
            "extraInfo": {
                "py_callstack": "".join(traceback.format_exception(error)),
                "timestamp": str(int(died_at_utc)),
                **words,
            },
        }
    }
    with contextlib.suppress(OSError):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("x", encoding="utf-8") as file:
            json.dump(note, file)


def _refusal_in(error: BaseException) -> FaultrunError | None:
    """What the SDK refused for good, if ``error`` is that or was raised from it.

    One that was itself raised from what a disk, memory, a device or a network said is no more than that.
    """
    while not isinstance(error, FaultrunError):
        if error.__cause__ is None:
            return None
        error = error.__cause__
    weather = isinstance(error.__cause__, OSError | MemoryError | RuntimeError)
    return None if weather or isinstance(error, CannotNow | OutOfRoom) else error


def answer_with_stacks(session: Session, before: OwnFile | None = None) -> OwnFile | None:
    """From now on STACKS_SIGNAL appends the main thread's stack to this rank's file beside the progress page.

    faulthandler writes it in the C signal handler itself. A thread of ours could not: a main thread that
    spins in an extension never lets it run. Nor does the handler write the other threads' stacks: one of them
    may hold Python's lock and change its stack while it is read, and a worker that works would crash. They
    are left to the helper thread, which reads them while it holds the lock. Does nothing where no file can be
    made there. ``before``: the file so far, made anew at its number if the script has closed it.
    """
    folder = _folder(session)
    if folder is None or (before is not None and before.is_ours()):
        return before
    with contextlib.suppress(OSError):
        path = folder / STACKS_FILE.format(rank=session.rank)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        file = OwnFile(out_of_the_way(fd, *([] if before is None else [before.fd])))
        faulthandler.register(STACKS_SIGNAL, file.fd, all_threads=False, chain=False)
        return file
    return None


def write_other_threads(session: Session) -> None:
    """The stacks of all threads but the main one and the caller's, innermost first, into a file beside."""
    if (folder := _folder(session)) is None:
        return
    left_out = {threading.main_thread().ident, threading.get_ident()}
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = []
    for ident, frame in sys._current_frames().items():
        if ident not in left_out:
            lines += [f'Thread "{names.get(ident, ident)}" (most recent call first):', *_calls(frame), ""]
    with contextlib.suppress(OSError):
        path = folder / THREADS_FILE.format(rank=session.rank)
        path.write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")


def _calls(frame: FrameType | None) -> list[str]:
    """List the calls as faulthandler writes them: no source, which may be on a disk that hangs."""
    calls = []
    while frame is not None:
        code = frame.f_code
        calls.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}')
        frame = frame.f_back
    return calls


def _folder(session: Session) -> Path | None:
    page, _, _ = session.progress.rpartition(":")
    return Path(page).parent if page else None
