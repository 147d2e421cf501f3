"""The helper thread: hears the request to save whatever the main thread is doing, saves, answers, leaves.

It does all the talking. The main thread only stores its step and passes the update lock; it never waits for
this thread, except while its state is being read. It is woken by a pipe that a C-level signal handler, or
another thread, writes a byte to: the main thread may be inside a collective that never returns, and then no
Python signal handler runs. CPython's own C handler still writes the signal's number to the wakeup descriptor,
in whatever thread the kernel picked, and needs no signal mask set up before the framework starts its threads.
"""

import contextlib
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from faultrun.model.wire import WINDOW_WORD
from faultrun.sdk.own_file import OwnFile
from faultrun.sdk.session import Session, SupervisorLink
from faultrun.sdk.stay.next_group import Regroup
from faultrun.sdk.worker.death_note import answer_with_stacks, write_other_threads
from faultrun.sdk.worker.progress_slot import ProgressSlot
from faultrun.sdk.worker.state_provider import SaveOrder, StateProvider
from faultrun.sdk.worker.update_lock import NotSaved
from faultrun.sdk.worker.wakeup_pipe import WakeupPipe

_STOPPED = 143
"""How a worker leaves after it was asked to: 128 + SIGTERM, as a shell reports it."""

_NOTHING = "the script gave faultrun.sdk nothing to save"
_HELLO = "hello"
LATE_LINE_S = 2.0
"""How long after a signal to a process of this job the supervisor may hear of the same stop."""

_TALK_S, _STALLED_S = 1.0, 1.0
_FLUSH_S, _LOOK_S = 0.2, 0.002


class Helper(threading.Thread):
    """Serves one worker until its process ends. ``provider`` may come later than the thread."""

    def __init__(self, session: Session, slot: ProgressSlot) -> None:
        super().__init__(name="faultrun-helper", daemon=True)
        self._session, self._slot = session, slot
        self._link = SupervisorLink(session)
        self._told: tuple[int, int | None] | None = None
        self._outbox: deque[tuple[str, dict[str, Any]]] = deque()
        self.regroup = Regroup()
        self.pipe = WakeupPipe()
        self.stacks: OwnFile | None = None
        self._said: set[str] = set()
        self.provider: StateProvider | None = None
        self.memory: Callable[[], dict[str, Any] | None] | None = None
        self.cooperative = False
        self.step: tuple[int, int | None] | None = None
        self.requested = threading.Event()
        self.stops = True
        """Whether the request is for a stop of the run, and not for a lost peer, as far as it says."""
        self.main_is_out = threading.Event()

    def run(self) -> None:
        """Serve as long as the process lives. That it does not any more is said by name."""
        try:
            self._serve()
        except BaseException as err:
            self._complain(
                f"its helper thread has ended: {type(err).__name__}: {err}; it saves on no request now"
            )
            raise

    def _serve(self) -> None:
        poll_at_s = 0.0
        while True:
            self._open_again()
            if time.monotonic() >= poll_at_s:
                self.tell_memory()
                self._talk()
                poll_at_s = time.monotonic() + _TALK_S
            self._poll(max(0.0, poll_at_s - time.monotonic()), self.pipe.fd)
            termed = self.pipe.read()
            if self._outbox or (self._told is None and self.step is not None):
                self._talk()
            for content in self._link.receive():
                self._obey(content)
            if termed:
                self.requested.set()  # a rank that ends now has been told to
                self._gasp(self._request_after_signal())

    def _open_again(self) -> None:
        """Have again what the script has closed, and say so, once for each."""
        stacks, page_ends = self.stacks, "page for the progress, for good: no steps are told from now on"
        self.stacks = answer_with_stacks(self._session, stacks) if stacks is not None else None
        closed = {
            "wakeup pipe": self.pipe.opens_again(),
            "file for stacks": stacks is not self.stacks,
            "socket": self._link.was_closed,
            "page for the progress" if self._slot.is_there else page_ends: self._slot.was_closed,
        }
        for name in (name for name, is_closed in closed.items() if is_closed and name not in self._said):
            self._said.add(name)
            self._complain(f"the script has closed faultrun's {name}")

    def _complain(self, what: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(f"faultrun: rank {self._session.rank}: {what}", file=sys.stderr, flush=True)  # noqa: T201

    def _poll(self, timeout_s: float, woken_by: int | None = None) -> None:
        """Wait for a message, or for ``woken_by``."""
        poller = select.poll()
        for fd in (woken_by, self._link.fd):
            if fd is not None:
                poller.register(fd, select.POLLIN)
        poller.poll(timeout_s * 1000)

    def _talk(self) -> None:
        """Report the newest step, if it is news."""
        if not self._session.socket or not self._link.connect():
            return
        while self._outbox:
            kind, fields = self._outbox[0]
            if not (self._link.introduce() if kind == _HELLO else self._link.send(kind, **fields)):
                return
            self._outbox.popleft()
        if (newest := self.step) is not None and newest != self._told:
            step, epoch = newest
            if self._link.send("step", step=step, **({} if epoch is None else {"epoch": epoch})):
                self._told = newest

    def say(self, kind: str, **fields: Any) -> None:
        """Have one message sent, now or as soon as the supervisor listens. Any thread."""
        self._outbox.append((kind, fields))
        self.pipe.poke()

    def tell_memory(self) -> None:
        """Have it sent what this process needs, where that is news."""
        if self.memory is not None and (news := self.memory()) is not None:
            self._outbox.append(("memory", news))

    def says_all(self, timeout_s: float) -> None:
        """Wait until all is said, if the supervisor listens: a process that ends says no more."""
        until_s = time.monotonic() + timeout_s
        while self._outbox and time.monotonic() < until_s:
            self.pipe.poke()
            time.sleep(_LOOK_S)

    def begins_again(self) -> None:
        """The session has moved to the next incarnation: introduce it, and tell its first step at once."""
        self.step = self._told = None
        self.say(_HELLO)

    def _obey(self, content: dict[str, Any]) -> None:
        match content["kind"]:
            case "gasp":
                self._gasp(content)
            case "save":
                step = content.get("step")
                until_s = _answer_by_s(self._window_s(content))
                self._save(SaveOrder(until_s=until_s, step=step if isinstance(step, int) else None))
            case "threads":
                write_other_threads(self._session)
            case _:
                self.regroup.hear(content, self._link.take_fd)

    def _gasp(self, request: dict[str, Any]) -> None:
        """Save what there is and leave. Returns only when there is nothing to save and no rank to leave."""
        self.stops = request.get("reason") != "peer"
        self.requested.set()
        if self.provider is None and not self.cooperative:
            self._link.send("failed", why=_NOTHING)
            return
        window_s = self._window_s(request)
        until_s, save_by_s = time.monotonic() + window_s, _answer_by_s(window_s)
        step = self.provider.newest() if self.provider is not None else None
        self._link.send("ack", **({} if step is None else {"step": step}))
        if self.cooperative:
            self._let_the_loop_stop(until_s)
        if self.provider is not None:
            lost = request.get("reason") == "peer"
            self._save(SaveOrder(until_s=save_by_s, leaves=True, peers_lost=lost))
        leave()

    def _window_s(self, request: dict[str, Any]) -> float:
        told = request.get(WINDOW_WORD)
        return float(told) if isinstance(told, int | float) and told > 0 else self._session.grace_s

    def _request_after_signal(self) -> dict[str, Any]:
        """SIGTERM says neither how long nor why; a line does, of which nothing has been heard yet.

        It was sent before the signal, unless we were not connected or another process has signalled: a
        platform signals all processes of a job, one after the other, and the supervisor may be the last.
        """
        until_s = time.monotonic() + LATE_LINE_S
        while self._link.fd is not None and (left_s := until_s - time.monotonic()) > 0:
            self._poll(left_s)
            for content in self._link.receive():
                if content["kind"] == "gasp":
                    return content
                self._obey(content)
        return {}

    def _let_the_loop_stop(self, until_s: float) -> None:
        """A loop that asks ``should_stop`` ends by itself, unless a peer is gone and it is stuck.

        It is waited for while it makes steps, for half of the window at most.
        """
        give_up_s = (time.monotonic() + until_s) / 2
        seen, moved_s = self.step, time.monotonic()
        while not self.main_is_out.wait(0.02):
            now_s = time.monotonic()
            if self.step != seen:
                seen, moved_s = self.step, now_s
            if now_s >= give_up_s or now_s - moved_s >= _STALLED_S:
                return

    def _save(self, order: SaveOrder) -> None:
        """Have the provider save, and tell what became of it. Nothing it does ends this thread."""
        if self.provider is None:
            self._link.send("failed", why=_NOTHING)
            return
        self._slot.saves(1)
        try:
            with self._watched(order):
                saved = self.provider.save(order)
        except (NotSaved, OSError) as err:
            self._link.send("failed", why=_short(str(err) or type(err).__name__))
        except BaseException as err:  # noqa: BLE001 - the user's or the framework's writer may raise anything
            self._link.send("failed", why=_short(f"{type(err).__name__}: {err}"))
        else:
            self._link.send(
                "saved",
                path=saved.path,
                step=saved.step,
                size_bytes=saved.size_bytes,
                took_s=saved.took_s,
                digest=saved.digest,
                replica_group=saved.replica_group,
                stopping=order.leaves,
            )
            with contextlib.suppress(OSError):
                self.provider.writer.prune(saved)
        finally:
            if not order.leaves:
                self._slot.saves(-1)

    @contextlib.contextmanager
    def _watched(self, order: SaveOrder) -> Iterator[None]:
        """Say so shortly before the window closes on a save that is still under way."""
        why = "the save did not finish within the window"
        left_s = max(0.0, order.until_s - time.monotonic())
        timer = threading.Timer(left_s, lambda: self._link.send("failed", why=why))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def leave() -> None:
    """End this process at once, as one that was told to stop.

    No interpreter shutdown: frameworks hang in it for many seconds once a peer is gone. What the script
    printed is flushed, unless the main thread is stuck while printing.
    """
    flusher = threading.Thread(target=_flush, daemon=True)
    flusher.start()
    flusher.join(_FLUSH_S)
    os._exit(_STOPPED)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _answer_by_s(window_s: float) -> float:
    """When a save must be over (monotonic clock): some of the window is kept for the answer."""
    return time.monotonic() + window_s - min(0.5, window_s / 5)


def _short(why: str) -> str:
    return why if len(why) <= 2000 else why[:2000] + " ..."
