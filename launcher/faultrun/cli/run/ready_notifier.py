"""What the composition root itself has to tell, beside the console."""

from collections.abc import Callable

from faultrun.journal.append import JournalWriter
from faultrun.model.events import Event, IncarnationStarted
from faultrun.model.run import Step


class ReadyNotifier:
    """Tells that workers run: ``--join=False`` returns then.

    And that the journal cannot be written: training goes on, but a person should know.
    """

    def __init__(self, ready: Callable[[], None], journal: JournalWriter, say: Callable[[str], None]) -> None:
        self._ready = ready
        self._journal = journal
        self._say = say
        self._trouble = ""

    def tell(self, event: Event, step: Step) -> None:  # noqa: ARG002  the port's
        """See ``ports.EventListener``."""
        if self._journal.trouble != self._trouble:
            self._trouble = self._journal.trouble
            self._say(self._trouble or "the journal is written again, nothing of it is missing")
        if isinstance(event, IncarnationStarted):
            self._ready()
