"""One place to wait: file descriptors, timers and what other threads post. No polling."""

import heapq
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count

from faultrun.model.events import Event, Timer, TimerFired

_LINGER_S = 5.0

Ready = Callable[[], Iterable[Event]]
"""Called when a descriptor is readable; returns what that means."""


class RunClock:
    """Run-seconds: this supervisor's monotonic clock, continued from where the journal stopped."""

    def __init__(self, start_s: float = 0.0) -> None:
        self.start_s = start_s
        self._zero = time.monotonic() - start_s

    def now(self) -> float:
        """Run-seconds now, to the microsecond: short in the journal, and read back as the same number."""
        return round(time.monotonic() - self._zero, 6)

    def of_utc_ns(self, utc_ns: int) -> float:
        """Run-seconds of a wall-clock moment such as a file's mtime, as good as the wall clock is steady."""
        return round(self.now() - (time.time_ns() - utc_ns) / 1e9, 6)

    def of_utc_s(self, utc_s: float | None) -> float | None:
        """Run-seconds of a wall-clock moment to come; None for none."""
        return None if utc_s is None else self.of_utc_ns(int(utc_s * 1e9))

    def of_monotonic(self, at_monotonic_s: float) -> float:
        """Run-seconds of a CLOCK_MONOTONIC reading of this machine."""
        return at_monotonic_s - self._zero


class Reactor:
    """Collects events. ``post``, ``call`` and ``fail`` are for any thread, the rest for the loop's."""

    def __init__(self, clock: RunClock) -> None:
        self.clock = clock
        self._epoll = select.epoll()
        self._ready: dict[int, Ready] = {}
        self._posted: deque[Event | Ready] = deque()
        self._bug: BaseException | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._timers: list[tuple[float, int, Timer, int]] = []
        self._newest: dict[Timer, int] = {}
        self._calls: list[tuple[float, int, Ready]] = []
        self._numbers = count()
        self._epoll.register(self._wake, select.EPOLLIN)

    def now(self) -> float:
        """Run-seconds now."""
        return self.clock.now()

    def watch(self, fd: int, ready: Ready) -> None:
        """Call ``ready`` whenever ``fd`` is readable or hung up."""
        self._ready[fd] = ready
        self._epoll.register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:
        """Watch ``fd`` no longer; harmless when it never was."""
        if self._ready.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def post(self, event: Event) -> None:
        """Have ``event`` returned by the next ``wait``."""
        self._posted.append(event)
        os.eventfd_write(self._wake, 1)

    def call(self, ready: Ready) -> None:
        """Have ``ready`` called by the next ``wait``, in the loop's thread."""
        self._posted.append(ready)
        os.eventfd_write(self._wake, 1)

    def fail(self, bug: BaseException) -> None:
        """Have ``bug`` raised by the next ``wait``: another thread could not have meant to."""
        self._bug = bug
        os.eventfd_write(self._wake, 1)

    def start_timer(self, timer: Timer, at_s: float, incarnation: int) -> None:
        """Return ``TimerFired`` at ``at_s`` run-seconds; replaces a running timer of that name."""
        number = next(self._numbers)
        self._newest[timer] = number
        heapq.heappush(self._timers, (at_s, number, timer, incarnation))

    def call_at(self, at_s: float, ready: Ready) -> None:
        """Call ``ready`` once at ``at_s`` run-seconds: for looks around that are no events by themselves."""
        heapq.heappush(self._calls, (at_s, next(self._numbers), ready))

    def wait(self) -> list[Event]:
        """Block until at least one event is there.

        Descriptors come in the order in which the kernel made them ready: for pidfds that of the deaths.
        """
        events: list[Event] = []
        while not events:
            ready_fds = [fd for fd, _ in self._epoll.poll(self._patience())]
            # What we did ourselves comes before what it led to: a worker is started before it has ended.
            if self._wake in ready_fds:
                events.extend(self._drain_posted())
            for fd in ready_fds:
                if (ready := self._ready.get(fd)) is not None:
                    events.extend(ready())
            events.extend(self._fired())
            events.extend(self._called())
        return events

    def close(self) -> None:
        """Let go of the kernel's objects, and of all that was to be called."""
        self._calls.clear()
        self._epoll.close()
        os.close(self._wake)

    def _patience(self) -> float | None:
        coming = [heap[0][0] for heap in (self._timers, self._calls) if heap]
        return max(0.0, min(coming) - self.clock.now()) if coming else None

    def _fired(self) -> Iterable[Event]:
        while self._timers and self._timers[0][0] <= self.clock.now():
            _, number, timer, incarnation = heapq.heappop(self._timers)
            if self._newest.get(timer) == number:
                yield TimerFired(at_s=self.clock.now(), incarnation=incarnation, timer=timer)

    def _called(self) -> Iterable[Event]:
        now_s = self.clock.now()
        while self._calls and self._calls[0][0] <= now_s:
            _, _, ready = heapq.heappop(self._calls)
            yield from ready()

    def _drain_posted(self) -> Iterable[Event]:
        os.eventfd_read(self._wake)
        if self._bug is not None:
            raise self._bug
        while self._posted:
            posted = self._posted.popleft()
            yield from posted() if callable(posted) else (posted,)


class BackgroundTasks:
    """Runs functions that yield events, one after the other; a bug in one is raised in the loop's thread."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], Iterable[Event]]] = deque()
        self._busy = self._has_thread = False
        self._began_s = 0.0

    def send(self, task: Callable[[], Iterable[Event]]) -> None:
        """Start ``task`` after the one before it has ended; post what it yields.

        Where there are as many processes as there may be, it is done before this returns: the ends of
        workers are waited for longer then, and not missed.
        """
        if not self._taken(task):
            self._perform(task)

    def offer(self, task: Callable[[], Iterable[Event]]) -> None:
        """Start ``task`` in a helper thread; leave it out while another is under way, or without a thread."""
        if self.idle():
            self._taken(task)

    def drop(self) -> None:
        """Begin none of those that still wait."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    def idle(self) -> bool:
        """Whether nothing is under way."""
        with self._changed:
            return not self._busy and not self._waiting

    def occupied_s(self, patience_s: float) -> float:
        """How long yet to wait for what is under way; 0 where nothing is, or has taken longer and hangs."""
        return 0.0 if self.idle() else max(0.0, self._began_s + patience_s - self._reactor.now())

    def settle(self, patience_s: float | None) -> None:
        """Wait for the last task, for ever if None: a rewrite under way must not be cut by our own exit."""
        with self._changed:
            self._changed.wait_for(self.idle, patience_s)

    def _taken(self, task: Callable[[], Iterable[Event]]) -> bool:
        """False where no thread is to be had."""
        with self._changed:
            if self.idle():
                self._began_s = self._reactor.now()
            self._waiting.append(task)
            self._changed.notify_all()
            if self._has_thread:
                return True
            try:
                threading.Thread(target=self._work, name="faultrun-task", daemon=True).start()
            except RuntimeError:
                self._waiting.clear()
                return False
            self._has_thread = True
            return True

    def _work(self) -> None:
        """In the thread. It lingers: to begin one costs more than most tasks."""
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting, _LINGER_S):
                    self._has_thread = False
                    return
                task = self._waiting.popleft()
                self._busy = True
            self._perform(task)
            del task
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _perform(self, task: Callable[[], Iterable[Event]]) -> None:
        self._began_s = self._reactor.now()
        try:
            for event in task():
                self._reactor.post(event)
        except BaseException as bug:  # noqa: BLE001  carried to the main thread, which re-raises it
            self._reactor.fail(bug)
