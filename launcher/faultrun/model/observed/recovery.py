"""What a restart came to: how long each part of the recovery took, and where the script began."""

from dataclasses import dataclass, fields
from enum import Enum

from faultrun.model.event_base import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTimed(Fact):
    """Training goes on (or workers run, where no rank reports steps). Parts in seconds, in their order.

    ``detect_s`` is the silence before a hang was believed; the kernel tells of deaths at once. ``pause_s``
    is the backoff, and what the platform held back. ``import_s`` ends when the last rank asks to meet,
    ``rendezvous_s`` when all have met: None where no rank tells us, and ``first_step_s`` then holds them
    too. It is None where no step is known, neither reported nor logged; when one comes late, a second line
    takes the place of the first. ``standbys`` counts ranks that did not start cold.
    """

    total_s: float = 0.0
    detect_s: float = 0.0
    drain_s: float = 0.0
    choose_s: float = 0.0
    pause_s: float = 0.0
    rewrite_s: float = 0.0
    spawn_s: float = 0.0
    import_s: float | None = None
    rendezvous_s: float | None = None
    first_step_s: float | None = None
    standbys: int = 0


PARTS = tuple(
    one.name
    for one in fields(RecoveryTimed)
    if one.name.endswith("_s") and one.name not in ("at_s", "total_s")
)
"""The fields that are parts, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStepLogged(Fact):
    """The first step of this incarnation that a log tells of, where ranks do not report theirs.

    ``step`` is global, ``in_epoch`` counts anew in every epoch; None: the log does not say.
    """

    rank: int
    step: int | None = None
    epoch: int | None = None
    in_epoch: int | None = None


class Began(Enum):
    """Where an incarnation began, beside where it should have begun."""

    AS_CHOSEN = "as chosen"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeChecked(Fact):
    """The first step of an incarnation was laid beside its recovery point; ``why`` is a sentence for people.

    ``step``, ``epoch`` and ``in_epoch`` are the first that was done, ``chosen_step`` is the recovery point's;
    None: unknown, or nothing to resume from.
    """

    began: Began
    why: str
    step: int | None = None
    epoch: int | None = None
    in_epoch: int | None = None
    by_log: bool = False
    chosen_step: int | None = None


RecoveryEvent = FirstStepLogged | RecoveryTimed | ResumeChecked
