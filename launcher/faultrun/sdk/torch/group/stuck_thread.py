"""A main thread that stands in a broken group: it is freed, or its process ends and a newcomer comes.

A dead peer's connections end by themselves, and mostly the main thread has its error before the rank can
help. The abort waits a moment for that: it is for peers that stand still, and loaders that hold on.

gloo (torch 2.13) never looks again at a connection that was receiving for a collective which another
connection has ended: a rank whose next collective waits there does so until the group's timeout, half an
hour by default, and its peers wait for it. ``KnownGloo`` prevents what we have seen of it.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from faultrun.sdk.stay.common_step import NOTHING

_BY_ITSELF_S, _SHORT_S, _LOOK_S = 0.02, 0.001, 0.25
_LOOKS = 10
"""Ten looks at which it has not moved: a thread that computes moves at each."""
_TORCH = str(Path(torch.__file__).parent)


class Left:
    """Up to which incarnation the main thread has let go of its group, and may form the next one."""

    def __init__(self) -> None:
        self._incarnation = NOTHING
        self._changing = threading.Lock()

    def note(self, incarnation: int) -> None:
        """Main thread, before it forms another. Returns once no abort of this one is under way."""
        with self._changing:
            self._incarnation = incarnation

    def has(self, incarnation: int) -> bool:
        """Whether that group is left."""
        return self._incarnation >= incarnation

    def unless(self, incarnation: int, abort: Callable[[], None]) -> None:
        """Call ``abort`` if it is not: one that comes later would end what the next group has connected."""
        with self._changing:
            if self._incarnation < incarnation:
                abort()


def free(left: Left, incarnation: int, abort: Callable[[], None]) -> None:
    """Call ``abort``, and end this process if its main thread stands still inside of torch. Any thread.

    Nothing of it once that incarnation's group is ``left``.
    """
    threading.Thread(
        target=free_now, args=(left, incarnation, abort), name="faultrun-stuck", daemon=True
    ).start()


def free_now(left: Left, incarnation: int, abort: Callable[[], None]) -> None:
    """Do what ``free`` promises in this thread, which ends when the group is left."""
    until_s = time.monotonic() + _BY_ITSELF_S
    while time.monotonic() < until_s:
        if left.has(incarnation):
            return
        time.sleep(_SHORT_S)
    left.unless(incarnation, abort)
    still, before = 0, b""
    while not left.has(incarnation):
        time.sleep(_LOOK_S)
        now = _moved(os.getpid())
        still = still + 1 if now == before and _is_in_torch() else 0
        before = now
        if still >= _LOOKS and not left.has(incarnation):
            print("faultrun: stuck in a broken process group; a newcomer comes", file=sys.stderr)  # noqa: T201
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)


def _moved(pid: int) -> bytes:
    """What changes when this main thread runs: its time on a processor, in nanoseconds, and its turns.

    One that waits for a disk, in the middle of a save, moves: gloo's waits can be interrupted.
    """
    with contextlib.suppress(OSError):
        task = Path(f"/proc/{pid}/task/{pid}")
        if (task / "stat").read_bytes().rpartition(b") ")[2][:1] != b"D":
            return (task / "schedstat").read_bytes()
    return os.urandom(8)  # nothing is known of it: it moves


def _is_in_torch() -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)


def forget_frames(error: BaseException | None) -> None:
    """Let go of tensors, graphs and the group that they hold; the script's own, which runs on, keeps its."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
