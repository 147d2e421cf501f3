"""All that can happen to a run, each as one call; what comes of it is told by ``support.stories.story``."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import (
    Drained,
    Event,
    FaultNotice,
    Heartbeat,
    HelperExit,
    IncarnationStarted,
    NothingWhole,
    PlanAdopted,
    Prepared,
    PrepareFailed,
    RecoveryPointChosen,
    RunFinished,
    SpawnFailed,
    Timer,
    TimerFired,
    WorkerExit,
)
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.observed.dying_gasp import GaspAcknowledged, GaspFailed, GaspSaved, GaspVerified
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.hang import Activity, HangDismissed, HangSuspected, Suspicion
from faultrun.model.observed.platform_notice import Notice
from faultrun.model.observed.progress import RankStep
from faultrun.model.observed.rejoin import (
    DeathsExamined,
    MemoryFaultFound,
    RankCannotRejoin,
    RankCanRejoin,
    RankRejoined,
)
from faultrun.model.plan import Plan
from faultrun.model.run import RunState
from faultrun.model.stop import StopRequested, StopSource
from support.stories import hang_stories

if TYPE_CHECKING:
    from typing_extensions import Self

_SIGKILL = 9


class Facts:
    """``now_s`` is the time that the next fact carries."""

    state: RunState
    now_s: float

    def tell(self, event: Event) -> "Self":
        """One fact."""
        raise NotImplementedError

    def now(
        self,
        kind: Callable[..., Event],
        *,
        after_s: float = 0.0,
        incarnation: int | None = None,
        **fields: object,
    ) -> "Self":
        """A fact of this moment; of the incarnation that was reached, unless another is named."""
        self.now_s += after_s
        life = self.state.incarnation if incarnation is None else incarnation
        return self.tell(kind(at_s=self.now_s, incarnation=life, **fields))

    def chose(self, point: RecoveryPoint | None = None, *, periodic_step: int | None = None) -> "Self":
        return self.now(RecoveryPointChosen, point=point, refused=(), periodic_step=periodic_step)

    def planned(self, plan: Plan) -> "Self":
        return self.now(PlanAdopted, incarnation=plan.incarnation, plan=plan)

    def found_nothing_whole(self, why: str = "3 found, none whole") -> "Self":
        return self.now(NothingWhole, refused=(), why=why)

    def prepared(self, port: int = 29500) -> "Self":
        return self.now(Prepared, master_port=port)

    def could_not_prepare(self, code: int, why: str, *, surveying: bool = False) -> "Self":
        return self.now(PrepareFailed, exit_code=code, why=why, surveying=surveying)

    def killed(self, rank: int, signum: int = _SIGKILL, *, after_s: float = 0.0) -> "Self":
        return self.ended(rank, Signaled(signum=signum), after_s=after_s)

    def returned(self, rank: int, code: int = 0, *, after_s: float = 0.0) -> "Self":
        return self.ended(rank, Exited(code=code), after_s=after_s)

    def ended(
        self,
        rank: int,
        status: ExitStatus,
        *,
        after_s: float = 0.0,
        incarnation: int | None = None,
        done: bool = False,
    ) -> "Self":
        return self.now(
            WorkerExit,
            after_s=after_s,
            incarnation=incarnation,
            node=self.state.node,
            rank=rank,
            pid=100 + rank,
            status=status,
            done=done,
        )

    def can_rejoin(self, *ranks: int) -> "Self":
        for rank in ranks:
            self.now(RankCanRejoin, rank=rank)
        return self

    def examined(self, *notes: DeathNote) -> "Self":
        """The dead of this incarnation, whose last words have been read."""
        dead = tuple(one.rank for one in self.state.life.exits)
        return self.now(DeathsExamined, dead=dead, notes=notes)

    def rejoined(self, *ranks: int, step: int = 41) -> "Self":
        for rank in ranks:
            self.now(RankRejoined, rank=rank, step=step)
        return self

    def cannot_rejoin(self, rank: int, why: str = "out of memory") -> "Self":
        return self.now(RankCannotRejoin, rank=rank, why=why)

    def has_bad_memory(self, rank: int, what: str = "persistent memory fault in 0.weight") -> "Self":
        return self.now(MemoryFaultFound, rank=rank, what=what)

    def is_silent(self, *ranks: int) -> "Self":
        suspicion = Suspicion(front=ranks, behind=ranks, silent_s=1.2, limit_s=1.0, usual_s=0.05)
        return self.now(HangSuspected, suspicion=suspicion)

    def works_after_all(self) -> "Self":
        return self.now(HangDismissed, why="rank 0 reads")

    def is_warned_of(self, rank: int, stance: Activity = Activity.SLEEPING) -> "Self":
        return self.tell(hang_stories.warned(self.now_s, self.state.incarnation, rank, stance))

    def goes_on(self, rank: int, *, paused_s: float = 4.0, warned: bool = True) -> "Self":
        life = self.state.incarnation
        return self.tell(hang_stories.over(self.now_s, life, rank, paused_s=paused_s, warned=warned))

    def hangs(
        self, rank: int, *, step: int | None = 41, stance: Activity = Activity.STOPPED, proved: bool = False
    ) -> "Self":
        life = self.state.incarnation
        return self.tell(
            hang_stories.detected(self.now_s, life, rank, step=step, stance=stance, proved=proved)
        )

    def all_run(self, *, after_s: float = 0.0, port: int = 29500) -> "Self":
        ranks = tuple(sorted(self.state.life.alive))
        return self.now(IncarnationStarted, after_s=after_s, ranks=ranks, master_port=port)

    def never_started(self, rank: int, errno: int, why: str = "could not start it") -> "Self":
        return self.now(SpawnFailed, rank=rank, errno=errno, why=why)

    def scheduler_ended(self, status: ExitStatus) -> "Self":
        return self.now(HelperExit, name="scheduler", pid=99, status=status)

    def reported(self, **step_of: int) -> "Self":
        """``reported(r0=12, r1=11)``: the newest steps of ranks 0 and 1."""
        steps = tuple(RankStep(rank=int(name[1:]), step=step, epoch=2) for name, step in step_of.items())
        return self.now(Heartbeat, steps=steps)

    def heard(self, rank: int, step: int | None) -> "Self":
        return self.now(GaspAcknowledged, rank=rank, step=step)

    def saved(self, rank: int, step: int, *, group: tuple[int, ...] = ()) -> "Self":
        return self.now(
            GaspSaved,
            rank=rank,
            path=f"gasp_{rank}",
            step=step,
            size_bytes=1,
            took_s=0.4,
            replica_group=group,
        )

    def read_back(self, rank: int, *, whole: bool = True) -> "Self":
        return self.now(
            GaspVerified, rank=rank, path=f"gasp_{rank}", whole=whole, why="whole" if whole else "torn"
        )

    def could_not_save(self, rank: int, why: str = "disk full") -> "Self":
        return self.now(GaspFailed, rank=rank, why=why)

    def told_to_stop(
        self, source: StopSource = StopSource.SIGTERM, *, after_s: float = 0.0, late_s: float = 0.0
    ) -> "Self":
        return self.now(StopRequested, after_s=after_s, source=source, late_s=late_s)

    def noticed(self, notice: Notice, *, after_s: float = 0.0) -> "Self":
        return self.now(FaultNotice, after_s=after_s, notice=notice)

    def rang(self, timer: Timer, *, after_s: float = 0.0, incarnation: int | None = None) -> "Self":
        return self.now(TimerFired, after_s=after_s, incarnation=incarnation, timer=timer)

    def drained(self, *notes: DeathNote, stragglers: tuple[int, ...] = ()) -> "Self":
        return self.now(Drained, stragglers=stragglers, swept=0, notes=notes)

    def finished(self, code: int = 0) -> "Self":
        return self.now(RunFinished, exit_code=code, why="over", stopped=False)
