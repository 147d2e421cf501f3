"""A journal in memory, of the same text as the real one; ``tests/contracts`` compares the two."""

import json

from faultrun.core.phases.decide import decide
from faultrun.journal.append import line_of
from faultrun.journal.read import event_of
from faultrun.model.events import Event
from faultrun.model.run import RunState, Step


class MemoryJournal:
    """Implements ``ports.Journal``. What is written is lost with the supervisor unless it was synced."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.synced = 0

    def append(self, event: Event, step: Step) -> None:
        """See ``ports.Journal``."""
        self.lines.append(json.dumps(line_of(event, step, {"node": "here", "boot": "b"})))

    def sync(self) -> None:
        """See ``ports.Journal``."""
        self.synced = len(self.lines)

    def sync_soon(self) -> None:
        """See ``ports.Journal``. The disk is slow: it has them at the next ``sync``."""

    def events(self) -> list[Event]:
        """What the text says, read back."""
        found = [event_of(json.loads(line)) for line in self.lines]
        return [event for event in found if event is not None]

    def replayed(self, state: RunState) -> RunState:
        """The state that the text leads to from ``state``."""
        for event in self.events():
            state = decide(state, event).state
        return state
