"""What the wiring itself has to tell, beside the narrator."""

from collections.abc import Callable

from faultrun.journal.append import JournalWriter
from faultrun.model.events import Event, IncarnationStarted
from faultrun.model.run import Step
from faultrun.supervisor.ports import EventListener


class Listeners:
    """Several who are told everything, one after the other."""

    def __init__(self, *narrators: EventListener) -> None:
        self._narrators = narrators

    def tell(self, event: Event, step: Step) -> None:
        """See ``ports.EventListener``."""
        for narrator in self._narrators:
            narrator.tell(event, step)


class ReadyNotifier:
    """A narrator that also tells the wiring's own news.

    That workers run, once: ``--join=False`` returns then. That the journal
    cannot be written: training goes on, but a person should know.
    """

    def __init__(
        self,
        narrator: EventListener,
        ready: Callable[[], None],
        journal: JournalWriter,
        say: Callable[[str], None],
    ) -> None:
        self._narrator = narrator
        self._ready = ready
        self._journal = journal
        self._say = say
        self._trouble = ""

    def tell(self, event: Event, step: Step) -> None:
        """See ``ports.EventListener``."""
        self._narrator.tell(event, step)
        if self._journal.trouble != self._trouble:
            self._trouble = self._journal.trouble
            self._say(self._trouble or "the journal is written again, nothing of it is missing")
        if isinstance(event, IncarnationStarted):
            self._ready()
