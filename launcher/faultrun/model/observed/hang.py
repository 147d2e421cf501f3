"""Hangs: what may be called one, what was seen of one, and what was concluded."""

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from faultrun.model.event_base import UNLESS_USED, Fact
from faultrun.model.observed.progress import WorkPhase
from faultrun.model.topology import NodeId


class HangSignal(Enum):
    """What is taken for a sign of life (``--hang_signal``)."""

    SDK = "sdk"
    LOG = "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A limit in seconds that is learnt between two bounds; equal bounds are the limit itself."""

    low_s: float
    high_s: float

    @property
    def fixed(self) -> bool:
        """Whether there is nothing to learn."""
        return self.low_s >= self.high_s


@dataclass(frozen=True, slots=True, kw_only=True)
class HangPolicy:
    """How long a rank may be silent, by what it does.

    A learnt limit is ``factor`` times what is usual. ``startup_s``: until a rank's first word, counted only
    once another has spoken, or from the start when ``speaks``: the user said that the script uses the SDK.
    ``compile_s``: until steps have a usual length. ``quiet_s``: for ``HangSignal.LOG``. ``given`` names the
    limits that the user set: a rank is replaced when they are over. The others only say when a silence is
    unusual enough for a warning.
    """

    enabled: bool = True
    signal: HangSignal = HangSignal.SDK
    factor: float = 20.0
    startup_s: float = 1800.0
    speaks: bool = False
    compile_s: float = 1800.0
    step: Span = Span(low_s=1.0, high_s=1800.0)
    checkpoint: Span = Span(low_s=60.0, high_s=1800.0)
    evaluation: Span = Span(low_s=60.0, high_s=3600.0)
    quiet_s: float = 600.0
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseHistory:
    """What the run has come through. It outlives its lives and, by the journal, its supervisors.

    ``longest_s`` is the longest pause after which training went on. The last rank that was replaced without a
    proof stood at ``hung_step`` (-1: before its first step), and its limit was ``hung_limit_s``.
    """

    WIRE_NAME: ClassVar[str] = "Patience"

    longest_s: float = 0.0
    hung_step: int | None = None
    hung_limit_s: float = 0.0


class Activity(Enum):
    """What a rank's main thread was found doing, the surest sign of a culprit first."""

    ENDED = "ended"
    STOPPED = "stopped"
    TRACED = "traced"
    DEAD = "dead"
    LEAVING = "leaving"
    UNINTERRUPTIBLE = "uninterruptible"
    SPINNING = "spinning"
    SLEEPING = "sleeping"
    BLOCKED = "blocked"
    POLLING = "polling"
    UNKNOWN = "unknown"
    WORKING = "working"
    STARVED = "starved"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Ranks that have been silent for longer than they may.

    ``front`` are those with the fewest steps; others wait for one of them. ``behind`` are those of them that
    have come least far within the step. ``silent_s`` and ``limit_s`` are of that one of them that spoke last;
    ``usual_s`` is the learnt length of a step, None where the limit was given. ``needed_s`` is the limit
    without the patience for ranks that were found at work; ``final`` is False while such a rank may get more
    time. At ``acts_s`` a rank is replaced; ``acts``: so long it has been silent. Until then it is warned of.
    ``by_log``: only their logs tell steps, so that no rank is ended for it, whatever is found. ``woken``: so
    often a stopped rank was woken in this silence. ``asked``: so were the other nodes, what their ranks do,
    and none has said that one of them is stuck, or works.
    """

    front: tuple[int, ...]
    behind: tuple[int, ...]
    silent_s: float
    limit_s: float
    usual_s: float | None = None
    needed_s: float = 0.0
    final: bool = True
    acts: bool = True
    acts_s: float = 0.0
    woken: int = 0
    asked: bool = False
    by_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HangSuspected(Fact):
    """No rank that could move the job on has moved for longer than it may; to be looked into."""

    suspicion: Suspicion


@dataclass(frozen=True, slots=True, kw_only=True)
class HangDismissed(Fact):
    """A look at the processes said that a rank works: the suspected get more time.

    ``excused_s`` of it is time in which the machine was too busy for them.
    """

    why: str
    excused_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HangFound(Fact):
    """The job stands still, and ``rank`` is the one that the others wait for.

    ``step`` is its last finished global step, None before the first. ``why`` is the cause for a person.
    ``where`` is its innermost Python frame, if it could be read. ``folder`` holds the stacks of
    ``stacks`` ranks, empty when none could be collected.
    """

    rank: int
    step: int | None
    doing: WorkPhase
    stance: Activity
    silent_s: float
    why: str
    where: str = ""
    folder: str = ""
    stacks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HangWarned(HangFound):
    """No rank is replaced for it before ``acts_s`` of silence; 0: none ever is."""

    acts_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HangElsewhere(HangFound):
    """It stands still for too long, and every rank of this node waits for those of others: they are asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangDetected(HangFound):
    """It stands still for too long.

    ``proved``: by what the kernel said, the rank could not have gone on; else it was given up for silence.
    """

    limit_s: float
    proved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOver(Fact):
    """A rank goes on after ``paused_s``: it was ``warned`` of, or the run had no longer pause before.

    ``longest_s`` is the longest pause of the run that raises limits, this one included, unless ``all_stood``:
    the supervisor stood still as long, and no rank did anything meanwhile (SIGSTOP, a suspended machine).
    """

    rank: int
    paused_s: float
    longest_s: float
    warned: bool
    all_stood: bool = field(default=False, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpoke(Fact):
    """Another node tells of its ranks while the job stands still.

    ``works`` says who of them may still move it on; empty: all of them wait, and it asks what ours do.
    """

    node: NodeId
    works: str = ""


HangEvent = HangSuspected | HangDismissed | HangWarned | HangElsewhere | HangDetected | PauseOver | NodeSpoke


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """What is known of a silence beside this node's own ranks, until one of them is found at work.

    ``suspicion`` is looked into. ``asked``: the other nodes what theirs do, and their answer is awaited.
    ``owes``: one of them has asked what ours do. ``heard`` is what another node said last. ``warning`` is
    what people were told of a rank that may hang, until it goes on.
    """

    suspicion: Suspicion | None = None
    asked: bool = False
    owes: bool = False
    heard: NodeSpoke | None = None
    warning: str = ""
