"""The helper thread: hears the request to save whatever the main thread is doing, saves, answers, leaves.

It does all the talking. The main thread only stores its step (``progress``)
and passes the gate (``gate``); it never waits for this thread, except while
its state is being read.
"""

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from faultrun.sdk.alarm import Alarm
from faultrun.sdk.keeper import After, Keeper, NotSaved, Order
from faultrun.sdk.link import Link
from faultrun.sdk.progress import ProgressSlot
from faultrun.sdk.session import Session
from faultrun.sdk.stacks import write_other_threads

STOPPED = 143
"""How a worker leaves after it was asked to: 128 + SIGTERM, as a shell reports it."""

_TALK_S = 1.0
_LINE_AFTER_SIGNAL_S = 0.03
_STALLED_S = 1.0
_FLUSH_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """To save and leave: within how long, and whether a peer is gone (see ``Order``)."""

    window_s: float
    peers_lost: bool


class Helper:
    """Serves one worker until its process ends. ``keeper`` may come later than the thread."""

    def __init__(self, session: Session, slot: ProgressSlot | None) -> None:
        self._session = session
        self._slot = slot
        self._link = Link(session)
        self._told: tuple[int, int | None] | None = None
        self._thread = threading.Thread(target=self._run, name="faultrun-helper", daemon=True)
        self.alarm = Alarm()
        self.keeper: Keeper | None = None
        self.cooperative = False
        self.step: tuple[int, int | None] | None = None
        self.requested = threading.Event()
        self.main_is_out = threading.Event()

    def start(self) -> None:
        """Start the thread; it lives as long as the process."""
        self._thread.start()

    @property
    def serves(self) -> bool:
        """Whether the thread still runs, as it should."""
        return self._thread.is_alive()

    def _run(self) -> None:
        poll_at_s = 0.0
        while True:
            if time.monotonic() >= poll_at_s:
                self._talk()
                poll_at_s = time.monotonic() + _TALK_S
            termed = self._wait(max(0.0, poll_at_s - time.monotonic()))
            if self._told is None and self.step is not None:
                self._talk()
            for content in self._link.receive():
                self._obey(content)
            if termed:
                self._gasp(self._request_after_signal())

    def _wait(self, timeout_s: float) -> bool:
        """Wait for a reason to wake up; whether SIGTERM was one."""
        poller = select.poll()
        poller.register(self.alarm.fd, select.POLLIN)
        if self._link.fd is not None:
            poller.register(self._link.fd, select.POLLIN)
        poller.poll(timeout_s * 1000)
        return self.alarm.read()

    def _talk(self) -> None:
        """Report the newest step, if it is news."""
        if not self._session.socket or not self._link.connect():
            return
        newest = self.step
        if newest is not None and newest != self._told:
            step, epoch = newest
            if self._link.send("step", step=step, **({} if epoch is None else {"epoch": epoch})):
                self._told = newest

    def _obey(self, content: dict[str, Any]) -> None:
        match content["kind"]:
            case "gasp":
                self._gasp(self._request(content))
            case "save":
                window_s = self._request(content).window_s
                step = content.get("step")
                order = Order(
                    until_s=time.monotonic() + window_s - _margin_s(window_s),
                    after=After.GO_ON,
                    step=step if isinstance(step, int) else None,
                )
                self._save(order)
            case "threads":
                write_other_threads(self._session)
            case _:
                pass  # a newer supervisor's word

    def _gasp(self, request: _Request) -> None:
        """Save what there is and leave. Returns only when there is nothing to save and nobody to leave."""
        self.requested.set()
        if self.keeper is None and not self.cooperative:
            self._link.send("failed", why="the script gave faultrun.sdk nothing to save")
            return
        until_s = time.monotonic() + request.window_s
        step = self.keeper.newest() if self.keeper is not None else None
        self._link.send("ack", **({} if step is None else {"step": step}))
        if self.cooperative:
            self._let_the_loop_stop(until_s)
        if self.keeper is not None:
            save_by_s = until_s - _margin_s(request.window_s)
            self._save(Order(until_s=save_by_s, after=After.LEAVE, peers_lost=request.peers_lost))
        leave()

    def _request(self, content: dict[str, Any]) -> _Request:
        window_s = _seconds(content.get("deadline_s"), self._session.grace_s)
        return _Request(window_s=window_s, peers_lost=content.get("reason") == "peer")

    def _request_after_signal(self) -> _Request:
        """SIGTERM says neither how long nor why; the line that follows it at once does."""
        if self._link.fd is not None:
            poller = select.poll()
            poller.register(self._link.fd, select.POLLIN)
            poller.poll(_LINE_AFTER_SIGNAL_S * 1000)
            for content in self._link.receive():
                if content["kind"] == "gasp":
                    return self._request(content)
        return _Request(window_s=self._session.grace_s, peers_lost=False)

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

    def _save(self, order: Order) -> None:
        """Have the keeper save, and tell what became of it. Nothing it does ends this thread."""
        if self.keeper is None:
            self._link.send("failed", why="the script gave faultrun.sdk nothing to save")
            return
        if self._slot is not None:
            self._slot.begin_save()
        try:
            with self._watched(order):
                saved = self.keeper.save(order)
        except (NotSaved, OSError) as err:
            self._link.send("failed", why=_short(str(err) or type(err).__name__))
        except BaseException as err:  # noqa: BLE001 - the user's or the framework's writer may raise anything
            self._link.send("failed", why=_short(f"{type(err).__name__}: {err}"))
        else:
            stopping = order.after is After.LEAVE
            self._link.send(
                "saved",
                path=saved.path,
                step=saved.step,
                size_bytes=saved.size_bytes,
                took_s=saved.took_s,
                digest=saved.digest,
                replica_group=saved.replica_group,
                stopping=stopping,
            )
            with contextlib.suppress(OSError):
                self.keeper.prune(saved)
        finally:
            if self._slot is not None and order.after is After.GO_ON:
                self._slot.end_save()

    @contextlib.contextmanager
    def _watched(self, order: Order) -> Iterator[None]:
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

    No interpreter shutdown: frameworks hang in it for many seconds once a
    peer is gone. What the script printed is flushed, unless the main thread
    is stuck while printing.
    """
    flusher = threading.Thread(target=_flush, daemon=True)
    flusher.start()
    flusher.join(_FLUSH_S)
    os._exit(STOPPED)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _margin_s(window_s: float) -> float:
    """What is kept of a window for the answer: after it comes SIGKILL."""
    return min(0.5, window_s / 5)


def _seconds(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else default


def _short(why: str) -> str:
    return why if len(why) <= 2000 else why[:2000] + " ..."
