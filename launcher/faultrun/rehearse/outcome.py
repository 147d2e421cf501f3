"""What a rehearsal tries and what came of it, as values. All times are seconds."""

from dataclasses import dataclass
from enum import Enum


class Trial(Enum):
    """A fault that is rehearsed, by the word of ``--faults``."""

    RANK = "rank"
    RANK_0 = "rank0"
    STOP = "stop"
    SUPERVISOR = "supervisor"
    TORN = "torn"
    FREEZE = "freeze"

    @property
    def title(self) -> str:
        """The name of the trial in the table."""
        return _TITLES[self]


_TITLES = {
    Trial.RANK: "SIGKILL of a rank",
    Trial.RANK_0: "SIGKILL of rank 0",
    Trial.STOP: "stopped (SIGTERM), started again",
    Trial.SUPERVISOR: "SIGKILL of faultrun, started again",
    Trial.TORN: "all ranks killed, newest checkpoint torn",
    Trial.FREEZE: "a rank frozen (SIGSTOP)",
}


class Fate(Enum):
    """How training came through a fault."""

    SURVIVED = "survived"
    LOST = "not survived"
    NOT_TRIED = "not tried"


class Likeness(Enum):
    """The losses after a restart, beside those of the undisturbed training."""

    SAME = "same"
    DIFFER = "differ"
    UNKNOWN = "unknown"
    UNSEEDED = "unseeded"


class Ailment(Enum):
    """What is wrong with a script or its command, as the grade names it; the value is for ``--json``."""

    SAVES_NOTHING = "saves nothing"
    SAVES_ELSEWHERE = "saves where faultrun is not told to look"
    SAVES_IN_PLACE = "saves over its checkpoint in place"
    BEGINS_ANEW = "ignores what it is given to resume from"
    NOT_TOLD = "is not told where to resume"
    HIDES_ERRORS = "exits 0 after an error"
    STUCK_IN_STOP = "does not end after SIGTERM"
    OTHER_LOSSES = "trains differently after a resume"
    FREEZE_UNSEEN = "a frozen rank is not noticed"
    NO_STEPS = "reports no steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCheck:
    """``compared`` lines that both printed; ``words`` tell the difference, or why there is nothing to say."""

    likeness: Likeness = Likeness.UNKNOWN
    compared: int = 0
    words: str = "no step was printed by both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One fault and what came of it.

    ``lost_steps`` were trained twice, ``again_s`` from the fault (from the second start, where one stops
    it) to the first step; None: unknown. ``life`` trained after it, -1: none did. ``note`` is for people.
    """

    trial: Trial
    fate: Fate
    lost_steps: int | None = None
    again_s: float | None = None
    resumed: str = ""
    life: int = -1
    losses: LossCheck = LossCheck()
    ailments: tuple[Ailment, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undisturbed:
    """The part that was trained without a fault, for comparison.

    ``first_step_s`` and ``first_save_s`` count from the start, ``silent_s`` is the longest time between two
    signs of life after the first step, ``save_every_s`` between two saves. ``last_step`` is None where
    no rank tells. ``failed`` says what went wrong without any fault of ours. ``exit_code`` is None where it
    was ended by us. ``first_save`` says what would be handed over after a fault. ``saves`` are paths, each
    once; ``elsewhere`` are their folders where ``--checkpoint_dir`` names none of them.
    """

    trained_s: float
    first_step_s: float | None = None
    last_step: int | None = None
    first_save_s: float | None = None
    save_every_s: float | None = None
    first_save: str = ""
    silent_s: float = 0.0
    saves: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    in_place: str = ""
    exit_code: int | None = None
    failed: str = ""
    last_words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalOutcome:
    """All of it. ``changed`` are files of the user's that are not as they were; there should be none.

    ``left_out`` are faults that were not asked for. ``watched`` files and folders were digested.
    ``isolation`` says how they were kept.
    """

    tried: tuple[Tried, ...]
    undisturbed: Undisturbed
    minutes: float
    took_s: float
    isolation: str
    left_out: tuple[Trial, ...] = ()
    watched: int = 0
    changed: tuple[str, ...] = ()

    @property
    def survived(self) -> bool:
        """Whether every fault was tried and survived."""
        return bool(self.tried) and all(one.fate is Fate.SURVIVED for one in self.tried)

    @property
    def ailments(self) -> tuple[Ailment, ...]:
        """What was found wrong, in the order of ``Ailment``."""
        found = {ailment for one in self.tried for ailment in one.ailments} | set(_of_training(self))
        if any(one.losses.likeness is Likeness.DIFFER for one in self.tried):
            found.add(Ailment.OTHER_LOSSES)
        return tuple(ailment for ailment in Ailment if ailment in found)


def _of_training(whole: RehearsalOutcome) -> tuple[Ailment, ...]:
    """What the undisturbed part shows."""
    part = whole.undisturbed
    found: list[Ailment] = []
    if part.first_step_s is None:
        found.append(Ailment.NO_STEPS)
    if part.first_save_s is None and not _gasped(whole):
        found.append(Ailment.SAVES_NOTHING)
    if part.elsewhere:
        found.append(Ailment.SAVES_ELSEWHERE)
    if part.in_place:
        found.append(Ailment.SAVES_IN_PLACE)
    return tuple(found)


def _gasped(whole: RehearsalOutcome) -> bool:
    """Whether a fault was survived without a periodic save: the dying gasp is one, too."""
    killed = (Trial.RANK, Trial.RANK_0, Trial.STOP)
    return any(one.fate is Fate.SURVIVED for one in whole.tried if one.trial in killed)
