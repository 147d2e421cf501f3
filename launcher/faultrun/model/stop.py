"""The user or the platform wants the run to end: who, how often, and whether impatiently."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from faultrun.model.event_base import UNLESS_USED, Fact

SAME_STOP_S = 2.0
"""One stop may come as two signals: a trap passes on what the group got, systemd sends SIGHUP too. And it may
reach ranks so long before it reaches the supervisor."""

KEYPRESS_S = 0.2
"""No person presses Ctrl-C again so soon; a wrapper that passes on what the terminal sends to all does."""


class StopSource(Enum):
    """Who told us to stop; the exit code of a stopped run follows from it."""

    SIGTERM = "SIGTERM"
    SIGINT = "SIGINT"
    SIGHUP = "SIGHUP"
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"
    CONTROL = "faultrun stop"
    PRESTOP = "the preStop hook"
    PLATFORM = "the platform"

    @property
    def is_signal(self) -> bool:
        """Whether it came as a signal to our process; a second one means impatience."""
        return self not in (StopSource.CONTROL, StopSource.PRESTOP, StopSource.PLATFORM)

    @property
    def ends_the_run(self) -> bool:
        """Whether it means the run: a person does. What else stops a node may be about that machine."""
        return self in (StopSource.CONTROL, StopSource.SIGINT)


STOP_EXIT_CODES = {
    StopSource.SIGTERM: 143,
    StopSource.SIGINT: 130,
    StopSource.SIGHUP: 129,
    StopSource.SIGUSR1: 143,
    StopSource.SIGUSR2: 143,
    StopSource.CONTROL: 143,
    StopSource.PRESTOP: 143,
    StopSource.PLATFORM: 143,
}
"""What a run ends with that was told to stop."""


def meant_most(stops: Sequence[StopSource]) -> StopSource | None:
    """Return the first of ``stops`` that ends the run, else the first of all; None without any."""
    return next((stop for stop in stops if stop.ends_the_run), stops[0] if stops else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested(Fact):
    """The run is to end, saved. ``late_s``: for so long the platform's clock has been running.

    ``by_s``: then the platform ends what still runs, as it said when it was asked.
    """

    source: StopSource
    late_s: float = 0.0
    by_s: float | None = field(default=None, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """This supervisor was told to end the run. ``signals`` are the first of each kind."""

    source: StopSource
    signals: tuple[StopRequested, ...] = ()

    def heard(self, event: StopRequested) -> "Stop":
        """The stop, with one more signal remembered."""
        if not event.source.is_signal or event.source in (one.source for one in self.signals):
            return self
        return replace(self, signals=(*self.signals, event))

    def is_repeated_by(self, event: StopRequested) -> bool:
        """Whether ``event`` is impatience (Ctrl-C again, or much later), and not the same stop once more."""
        if not event.source.is_signal:
            return False
        again = event.source is StopSource.SIGINT
        pressed = (one.at_s for one in self.signals if again and one.source is event.source)
        if any(event.at_s - at_s >= KEYPRESS_S for at_s in pressed):
            return True
        return any(event.at_s - one.at_s >= SAME_STOP_S for one in self.signals)
