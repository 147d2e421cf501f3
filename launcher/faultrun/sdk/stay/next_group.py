"""What the helper thread hears of the process group, and the main thread waits for: the next one.

Knows nothing of a framework. Every word carries its incarnation, for it may come before the main thread has
noticed anything, or while it enters the group that just broke again.
"""

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

_PATIENCE_S, _LONGEST_S = 30.0, 86400.0
_PLACE = ("stdout", "stderr", "error_file")
_TEXTS = (*_PLACE, "secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Enter ``incarnation``. Fields as in ``model.wire``; ``memory`` is a descriptor, -1 for none.

    ``all_stayed``: all are in it, and none is new. ``missing``: the ranks whose places are empty; ``others``:
    who is lost of these, and who is new.
    """

    incarnation: int
    store: str
    page: str
    timeout_s: float
    memory: int = -1
    all_stayed: bool = False
    missing: tuple[int, ...] = ()
    others: frozenset[int] = frozenset()
    stdout: str = ""
    stderr: str = ""
    error_file: str = ""
    secret: str = ""

    def behind(self, unheeded: "Join") -> "Join":
        """With what only ``unheeded``, which was not followed, said of the place of the dead."""
        place = {name: getattr(self, name) or getattr(unheeded, name) for name in _PLACE}
        memory = unheeded.memory if self.memory < 0 else self.memory
        return replace(self, memory=memory, **place)


@dataclass(frozen=True, slots=True)
class CopiesAt:
    """Where this node takes in memory snapshots of the node before. As in ``model.wire``."""

    incarnation: int
    at: str
    own: int
    next: int
    asked: bool


class Regroup:
    """Between the helper thread, which hears, and the main thread, which waits."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._lost = -1
        self._join: Join | None = None
        self._memory: int | None = None
        self.is_awaited = False
        """Whether this process has said that it enters the next group when a peer is lost."""
        self.refused = ""
        """Why there is no memory for snapshots; "" while it is not said."""
        self.asked = -1
        """The newest incarnation whose ranks are to leave their group between two steps. Any thread."""
        self.patience_s = _PATIENCE_S
        """How long the supervisor waits for all to have rejoined."""
        self.times: dict[str, float] = {}
        """When what happened in the incident that is under way (monotonic clock)."""
        self.may_end: Callable[[], bool] = bool
        """Whether the script may end although a peer is lost. Main thread."""
        self.abort: Callable[[int], object] = int
        """Frees the main thread out of a collective of this incarnation's group. Helper thread."""
        self._on_lost: Callable[[], object] | None = None
        self.copies_at: CopiesAt | None = None
        """The newest word of it. Any thread."""
        self.copies_ended = -1
        """The newest incarnation in which copies leave this node no more, and why."""
        self.copies_why = ""
        self._missed = False

    def when_lost(self, call: Callable[[], object]) -> None:
        """``call`` runs at each loss of a peer, in another thread; also for one before it was asked."""
        with self._news:
            self._on_lost, missed, self._missed = call, self._missed, False
        if missed:
            threading.Thread(target=_run, args=(call,), name="faultrun-peer-lost", daemon=True).start()

    def hear(self, content: Mapping[str, Any], take_fd: Callable[[], int]) -> None:
        """One message of the supervisor. Helper thread; what is not well-formed is not heard."""
        match content:
            case {"kind": "peer_lost", "incarnation": int(incarnation), "at_boundary": True}:
                self.asked = max(self.asked, incarnation)
            case {"kind": "peer_lost", "incarnation": int(incarnation)}:
                self._hear_lost(incarnation, _seconds(content.get("timeout_s")))
            case {"kind": "join", "incarnation": int(incarnation), "store": str(store), "page": str(page)}:
                memory = take_fd() if content.get("fds") == 1 else -1
                patience_s = _seconds(content.get("timeout_s"))
                missing = tuple(one for one in content.get("missing", ()) if isinstance(one, int))
                others = frozenset((*missing, *content.get("newcomers", ())))
                self._hear_join(
                    Join(
                        incarnation=incarnation,
                        store=store,
                        page=page,
                        timeout_s=patience_s,
                        memory=memory,
                        all_stayed=content.get("newcomers") == [] and not missing,
                        missing=missing,
                        others=others.difference(content.get("finished", ())),
                        **{name: str(content.get(name, "")) for name in _TEXTS},
                    )
                )
            case {"kind": "snapshot_fd"}:
                with self._news:
                    self._memory = take_fd()
                    self._news.notify_all()
            case {"kind": "snapshot_refused"}:
                self.refused = str(content.get("why", ""))
            case {"kind": "copies_at", "incarnation": int(number), "own": int(own), "next": int(other)}:
                self.copies_at = CopiesAt(
                    number, str(content.get("at", "")), own, other, content.get("asked") is True
                )
            case {"kind": "copies_end", "incarnation": int(number)}:
                self.copies_ended = max(self.copies_ended, number)
                self.copies_why = str(content.get("why", ""))

    def _hear_lost(self, incarnation: int, patience_s: float) -> None:
        with self._news:
            if incarnation > self._lost:
                self._lost = incarnation
                self.times.setdefault("heard", time.monotonic())
            self.patience_s = patience_s
            call = self._on_lost
            self._missed = call is None
            self._news.notify_all()
        self.abort(incarnation)
        if call is not None:
            _run(call)

    def _hear_join(self, join: Join) -> None:
        with self._news:
            before, self._join = self._join, join
            if before is not None:  # a newcomer was told only there what it takes over
                self._join = join.behind(before)
            self._news.notify_all()
        if before is not None and before.memory >= 0 and before.memory != self._join.memory:
            with contextlib.suppress(OSError):
                os.close(before.memory)

    def is_lost(self, incarnation: int) -> bool:
        """Whether a peer of this incarnation's group is known to be gone. Any thread."""
        return self._lost >= incarnation

    def is_over(self, incarnation: int) -> bool:
        """Whether a peer of this incarnation's group is gone, or a newer group is being formed."""
        join = self._join
        return self._lost >= incarnation or (join is not None and join.incarnation > incarnation)

    def wait_lost(self, incarnation: int, timeout_s: float) -> bool:
        """Wait for that word. Main thread."""
        with self._news:
            return self._news.wait_for(lambda: self._lost >= incarnation, timeout_s)

    def wait_join(self, after: int, timeout_s: float | None) -> Join | None:
        """The newest group to enter, once there is one newer than ``after``; None when it never came.

        None for ``timeout_s`` waits for ever: a newcomer that is not needed yet.
        """

        def there() -> bool:
            return self._join is not None and self._join.incarnation > max(after, self._lost)

        with self._news:
            if not self._news.wait_for(there, timeout_s):
                return None
            join, self._join = self._join, None
            return join

    def keeps(self, rank: int, after: int, timeout_s: float) -> bool:
        """Wait for a group newer than ``after``: whether ``rank`` lives on in it. Main thread."""
        with self._news:
            self._news.wait_for(lambda: self._join is not None and self._join.incarnation > after, timeout_s)
            return self._join is not None and rank not in self._join.others

    def memory(self) -> int | None:
        """The descriptor that was asked for, once; None until it has come."""
        memory, self._memory = self._memory, None
        return memory


def _seconds(told: object) -> float:
    return float(told) if isinstance(told, int | float) and 0 < told <= _LONGEST_S else _PATIENCE_S


def _run(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - the script's own; this thread has others to hear
        traceback.print_exc()
