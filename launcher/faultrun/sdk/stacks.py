"""The worker's answer to "where are you?": all threads' stacks, also while it holds Python's lock.

faulthandler writes them in the C signal handler itself. A thread of ours
could not: a main thread that spins in an extension never lets it run.
"""

import contextlib
import faulthandler
import os
from pathlib import Path

from faultrun.model.wire import STACKS_FILE, STACKS_SIGNAL
from faultrun.sdk.session import Session


def answer_with_stacks(session: Session) -> None:
    """From now on STACKS_SIGNAL appends a dump to this rank's file, in the folder of the progress page.

    Does nothing where there is no such folder or no file can be made there.
    """
    page, _, _ = session.progress.rpartition(":")
    if not page:
        return
    with contextlib.suppress(OSError):
        path = Path(page).parent / STACKS_FILE.format(rank=session.rank)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        faulthandler.register(STACKS_SIGNAL, fd, all_threads=True, chain=False)
