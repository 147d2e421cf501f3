"""What the supervisor needs from the world, as protocols; ``cli/run/composition.py`` brings the real ones.

No call blocks the loop: what takes time is started here and answered by an
event, and every answer comes through the reactor.
"""

from collections.abc import Iterable
from typing import Protocol

from faultrun.model.actions import Action, RaiseAlarm
from faultrun.model.events import Event
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.run import Step


class Executor(Protocol):
    """Everything outside the supervisor's head."""

    def wait(self) -> Iterable[Event]:
        """Block until something happened; return it in the order in which it happened."""

    def perform(self, action: Action) -> None:
        """Start ``action`` and return; its outcome comes back as events."""


class Journal(Protocol):
    """Where events and decisions are written before they are acted on, but for signals and alarms."""

    def append(self, event: Event, step: Step) -> None:
        """Write one line."""

    def sync(self) -> None:
        """Return once every line is on the disk."""

    def sync_soon(self) -> None:
        """Have the disk take every line, without waiting for it."""


class EventListener(Protocol):
    """A listener to what happens, one of a list that the loop tells. Must not raise and must not block.

    It starts, signals and ends no worker: it tells people, or posts what it found as an event. What shall be
    done is decided in the step, and performed by the executor.
    """

    def tell(self, event: Event, step: Step) -> None:
        """One event and what was decided about it."""


class Agreement(Protocol):
    """How nodes agree on the next incarnation. Answers come only as events; nothing here blocks."""

    def publish(self, fact: NodeFact) -> None:
        """Make ``fact`` this node's newest statement."""

    def raise_alarm(self, order: RaiseAlarm) -> None:
        """Tell every node that an incarnation is over."""

    def tell_nodes(self, incarnation: int, works: str) -> None:
        """Tell the other nodes directly what ours do, as ``NodeSpoke``. It may be lost."""
