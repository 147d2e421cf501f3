"""The worker's answer to "where are you?": the main thread's stack, also while it holds Python's lock.

faulthandler writes it in the C signal handler itself. A thread of ours could
not: a main thread that spins in an extension never lets it run. Nor does
the handler write the other threads' stacks: one of them may hold the lock and
change its stack while it is read, and a worker that works would crash. They
are left to the helper thread, which reads them while it holds the lock.
"""

import contextlib
import faulthandler
import os
import sys
import threading
from pathlib import Path
from types import FrameType

from faultrun.model.wire import STACKS_FILE, STACKS_SIGNAL, THREADS_FILE
from faultrun.sdk.session import Session


def answer_with_stacks(session: Session) -> None:
    """From now on STACKS_SIGNAL appends a dump to this rank's file, in the folder of the progress page.

    Does nothing where there is no such folder or no file can be made there.
    """
    folder = _folder(session)
    if folder is None:
        return
    with contextlib.suppress(OSError):
        path = folder / STACKS_FILE.format(rank=session.rank)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        faulthandler.register(STACKS_SIGNAL, fd, all_threads=False, chain=False)


def write_other_threads(session: Session) -> None:
    """The stacks of all threads but the main one and the caller's, innermost first, into a file beside."""
    folder = _folder(session)
    if folder is None:
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
    """As faulthandler writes them: no source, which may be on a disk that hangs."""
    calls = []
    while frame is not None:
        code = frame.f_code
        calls.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}')
        frame = frame.f_back
    return calls


def _folder(session: Session) -> Path | None:
    page, _, _ = session.progress.rpartition(":")
    return Path(page).parent if page else None
