"""What the supervisor can be told to do. Each is performed in exactly one place, and answered by events."""

from dataclasses import dataclass, field
from typing import ClassVar

from faultrun.model.event_base import UNLESS_USED
from faultrun.model.events import Timer
from faultrun.model.incident import Save
from faultrun.model.observed.hang import PauseHistory, Suspicion
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.observed.standby import StandbyPhase
from faultrun.model.plan import Attempt, Plan
from faultrun.model.spec.windows import NO_TIME, Deadline
from faultrun.model.stop import StopSource


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimer:
    """Fire ``timer`` at ``at_s`` run-seconds; a timer of the same name is replaced."""

    timer: Timer
    at_s: float
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestGasp:
    """SIGTERM (then SIGCONT) to the leaders of ``ranks``, never to their groups.

    SIGKILL follows at ``deadline``. ``peers_lost``: a rank is gone or stands still, so no collective ends.
    ``stop``: what told the run to end.
    """

    ranks: frozenset[int]
    deadline: Deadline = field(metadata={"wire": "deadline_s"})
    peers_lost: bool = field(default=False, metadata={"wire": "stranded"})
    stop: StopSource | None = field(default=None, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSurvivors:
    """Tell ``ranks`` that a peer is gone and will be replaced: leave the group, stay alive.

    Of several nodes each listens then, so that all can meet anew; answers SurvivorsFreed there.
    ``at_boundary``: no rank is gone, and they say (RankCanRejoin) that all of them stand between two steps.
    """

    incarnation: int
    ranks: frozenset[int]
    at_boundary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamineDeaths:
    """Read the death notes of ``dead`` while the others live; answers DeathsExamined."""

    incarnation: int
    dead: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRanks:
    """Kill what the dead ``ranks`` left behind outside of their sessions; the others live. No answer.

    ``incarnation`` is the newest that they may have been started for.
    """

    incarnation: int
    ranks: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSave:
    """Ask every rank that can be asked to save within ``window_s``, and to go on. No answer of its own."""

    window_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspect:
    """Look at the suspects' processes, collect all stacks; answers HangDismissed, HangWarned or HangDetected.

    ``number`` is the incident's, if it becomes one: its folder is named after it.
    """

    incarnation: int
    number: int
    suspicion: Suspicion


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """SIGCONT to the whole process group of each rank, which another process has stopped. No answer."""

    ranks: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """SIGKILL to each rank and to what is left of it; not yet to who has a checkpoint open to be written.

    That one may go on until ``writers_until``.
    """

    ranks: frozenset[int]
    writers_until: Deadline = field(default=NO_TIME, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySave:
    """Read back what ``rank`` saved; answers GaspVerified, unless a look for checkpoints comes first.

    It takes as long as the file is large, and nothing else waits for it.
    """

    incarnation: int
    rank: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Kill helpers and escaped descendants of the incarnation, read the death notes; answers Drained.

    Those that still write a checkpoint are waited for. When all are killed, what memory snapshots hold and no
    save of ``saves`` does is written until ``write_by``, as the dead would have saved it. ``finished``: every
    rank ended with 0, and what they left may be left.
    """

    incarnation: int
    dead: tuple[int, ...]
    saves: tuple[Save, ...] = ()
    write_by: Deadline = field(default=NO_TIME, metadata={"wire": "write_by_s"})
    finished: bool = field(default=False, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindRecoveryPoint:
    """Look through the checkpoints; answers RecoveryPointChosen, NothingWhole or PrepareFailed.

    ``continuing`` is False only for the first incarnation of a new run, where ``--resume`` decides whether
    what is found may be used. ``fault_at_s``, where a rank died, makes gasps of that life doubtful whose
    writers did not check that no update was half done; the moment itself is not compared. ``quarantine``
    lists what restarts could not get past. Files of the ranks in ``lost`` are passed over where another rank
    can stand in. ``expects`` is a checkpoint that the run is known to have had; ``folders`` are where its
    ranks said that they saved. ``world_size`` is that of the plan, 0 in older journals; ``before``: how many
    workers the run had, where it was started again with another number. ``resumed`` is what the plan of
    several nodes resumed from: a node that came late may have taken it for that of another run. ``reached``
    is the largest step that this run is known to have trained, None where none was seen. ``opened`` are files
    that the script read before it failed.
    """

    WIRE_NAME: ClassVar[str] = "Survey"

    incarnation: int
    continuing: bool
    fault_at_s: float | None = None
    quarantine: tuple[Attempt, ...] = ()
    lost: tuple[int, ...] = ()
    expects: str = ""
    folders: tuple[str, ...] = ()
    world_size: int = 0
    before: int = field(default=0, metadata=UNLESS_USED)
    resumed: str = field(default="", metadata=UNLESS_USED)
    reached: int | None = field(default=None, metadata=UNLESS_USED)
    opened: tuple[str, ...] = field(default=(), metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Give the agreement this node's newest statement; it replaces the one before."""

    WIRE_NAME: ClassVar[str] = "Tell"

    fact: NodeFact


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseAlarm:
    """Tell all nodes that the incarnation is over, before any node has a plan. ``stop``: for our stop.

    ``stays``: ranks that can outlive it are to stay.
    """

    incarnation: int
    why: str
    stop: StopSource | None = None
    stays: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TellNodes:
    """Tell the other nodes of the ranks here, directly; it may be lost. They hear NodeSpoke. No answer."""

    incarnation: int
    works: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Rewrite configurations for the plan and reserve a port; answers Prepared or PrepareFailed."""

    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Start these ranks; answers WorkerStarted or SpawnFailed for each, and IncarnationStarted if all run.

    After the first that cannot be started no other is tried. ``native_scheduler`` is the plan's. ``patience``
    is what the run has come through in its lives so far. The standbys of ``standbys`` may become workers.
    ``finished``: who of the plan's missing ranks is not lost.
    """

    plan: Plan
    ranks: tuple[int, ...]
    master_addr: str
    master_port: int
    native_scheduler: bool = False
    patience: PauseHistory = PauseHistory()
    standbys: frozenset[int] = frozenset()
    finished: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreScheduling:
    """Schedule the workers as any process again: MindSpore's ``init()`` is behind them. No answer."""

    WIRE_NAME: ClassVar[str] = "RestorePolicy"

    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStandby:
    """Start the standby of ``rank``; answers StandbyChanged, or the timer STANDBY to ask again."""

    incarnation: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkStandby:
    """Have the standby of ``rank`` run the user's program up to its first step; answers StandbyChanged.

    It will need ``needs_bytes`` of the machine's memory. Where that is not free, or ``short`` says why its
    device has no room, it is kept ready. ``heals``: its place is empty, so there is room; where no standby
    waits, the program is started as it is.
    """

    incarnation: int
    rank: int
    needs_bytes: int = 0
    short: str = ""
    heals: bool = field(default=False, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissStandbys:
    """End these standbys; answers StandbyChanged for each: ``state`` is what they are called from now on."""

    incarnation: int
    ranks: tuple[int, ...]
    state: StandbyPhase
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseStandbys:
    """A restart is likely: full priority for these ranks' standbys, and a sign of life. No answer."""

    ranks: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpHandover:
    """Kill the standby that was given a rank and has not answered by now; a cold start takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatStandbys:
    """The standby of the first of each pair serves the second from now on. No answer."""

    ranks: tuple[tuple[int, int], ...]


StandbyAction = StartStandby | DismissStandbys | RaiseStandbys | GiveUpHandover | SeatStandbys

_ForWorkers = RequestGasp | RequestSave | Inspect | Wake | Kill | VerifySave | Sweep | RestoreScheduling
_ForSurvivors = FreeSurvivors | ExamineDeaths | SweepRanks | ParkStandby
_ForStart = FindRecoveryPoint | Prepare | Spawn
_ForNodes = Publish | RaiseAlarm | TellNodes
Action = StartTimer | _ForWorkers | _ForSurvivors | _ForStart | _ForNodes | StandbyAction
