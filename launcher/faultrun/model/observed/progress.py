"""How far one rank has come, and what it says it is doing."""

from dataclasses import dataclass
from enum import Enum


class WorkPhase(Enum):
    """What a rank says it is doing (SDK)."""

    UNKNOWN = "unknown"
    COMPUTING = "computing"
    COLLECTIVE = "collective"
    UPDATING = "updating"
    SAVING = "saving"
    EVALUATING = "evaluating"
    DONE = "done"


_PHASES = tuple(WorkPhase)


def phase_of(number: int) -> WorkPhase:
    """The phase by its position; UNKNOWN for a number from a newer SDK."""
    return _PHASES[number] if 0 <= number < len(_PHASES) else WorkPhase.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """The newest word of one rank: ``step`` is global, counted in optimizer updates."""

    rank: int
    step: int
    epoch: int | None = None
    phase: WorkPhase = WorkPhase.UNKNOWN
