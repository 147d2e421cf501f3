"""A run told as a story: feed the facts, read what the supervisor did and why.

The agreement of a single node answers by itself, by the function that the
real one uses; everything else happens only when the story says so.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from faultrun.core.agree import Rules, next_step
from faultrun.core.begin import plan_to_go_on_from
from faultrun.core.decide import decide
from faultrun.model.actions import Action, Publish, Spawn
from faultrun.model.checkpoint import Kind, RankFile, RecoveryPoint, Shared
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
    RunStarted,
    SpawnFailed,
    Timer,
    TimerFired,
    WorkerExit,
)
from faultrun.model.evidence import DeathNote
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.gasp import GaspAcknowledged, GaspFailed, GaspSaved, GaspVerified
from faultrun.model.hang import (
    Activity,
    HangDismissed,
    HangSuspected,
    Suspicion,
)
from faultrun.model.incident import Card, Incident
from faultrun.model.notice import Notice
from faultrun.model.plan import Ledger, Plan, Reason
from faultrun.model.progress import RankStep
from faultrun.model.rejoin import (
    DeathsExamined,
    MemoryFaultFound,
    RankCannotRejoin,
    RankCanRejoin,
    RankRejoined,
)
from faultrun.model.run import Drain, Life, Phase, Run, RunState, Step
from faultrun.model.spec import RestartPolicy, Windows
from faultrun.model.stop import StopRequested, StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from support import silences

NODE = NodeId("here")
SIGKILL, SIGTERM, SIGSEGV = 9, 15, 11
POLICY = RestartPolicy(max_restarts=3, window_s=3600, backoff_min_s=1, backoff_max_s=60)
WINDOWS = Windows(grace_s=30, stop_grace_s=20, reap_s=10)
STAYING = replace(WINDOWS, rejoin_s=15)

A = TypeVar("A")


def topology(world_size: int, node: NodeId = NODE) -> Topology:
    return Topology(nodes=(NodeSlots(node=node, slots=world_size),))


def new_run(world_size: int, windows: Windows = WINDOWS) -> RunState:
    return RunState(node=NODE, topology=topology(world_size), windows=windows)


def first_plan(world_size: int, **more: object) -> Plan:
    """What incarnation 0 is to be; ``more`` changes it into a later one."""
    plan = Plan(
        incarnation=0,
        topology=topology(world_size),
        reason=Reason.FIRST,
        point=None,
        start_at_s=0,
        ledger=Ledger(),
    )
    return replace(plan, **more)  # type: ignore[arg-type]


def in_phase(phase: Phase, world_size: int = 1) -> RunState:
    """A run that stands there in its incarnation 0."""
    return replace(
        new_run(world_size),
        phase=phase,
        run=Run(plan=first_plan(world_size)),
        life=Life(drain=Drain() if phase in (Phase.REPLACING, Phase.DRAINING, Phase.KILLING) else None),
        exit_code=0 if phase is Phase.FINISHED else None,
    )


def checkpoint(step: int, path: str = "") -> RecoveryPoint:
    path = path or f"ckpt/net-{step}.ckpt"
    return RecoveryPoint(
        path=path,
        kind=Kind.PERIODIC,
        global_step=step,
        epoch=1,
        step_in_epoch=step,
        files=(RankFile(rank=0, path=path),),
        source=Shared(),
    )


class Story:
    """Facts in, decisions out. ``now_s`` is the time that the next fact carries."""

    def __init__(
        self, world_size: int = 3, policy: RestartPolicy = POLICY, windows: Windows = WINDOWS
    ) -> None:
        self.state = new_run(world_size, windows)
        self.rules = Rules(topology=self.state.topology, policy=policy)
        self.now_s = 0.0
        self.actions: list[Action] = []
        self.whys: list[str] = []
        self.steps: list[tuple[Event, Step]] = []
        self.agreement_is_silent = False
        self.answers_wait = False
        """Whether answers wait for ``hears``, as those that come while more is on its way."""
        self._plan: Plan | None = None
        self._answers: list[Event] = []

    @property
    def phase(self) -> Phase:
        return self.state.phase

    @property
    def deadline_s(self) -> float:
        assert self.state.life.drain is not None
        return self.state.life.drain.deadline_s

    @property
    def plan(self) -> Plan:
        assert self.state.plan is not None
        return self.state.plan

    @property
    def incident(self) -> Incident:
        assert self.state.life.incident is not None
        return self.state.life.incident

    @property
    def card(self) -> Card:
        """What a person would be shown of the incident now, if nothing was saved."""
        return Card(
            incident=self.incident,
            world_size=self.state.topology.world_size,
            saves=(),
            point=None,
            refused=0,
            restart=(0, 3),
            window_s=3600,
        )

    def tell(self, event: Event) -> "Story":
        """One fact; the agreement's answer to what is then stated follows at once."""
        step = decide(self.state, event)
        self.steps.append((event, step))
        self.state = step.state
        self.whys.append(step.why)
        self.actions += step.actions
        for action in step.actions:
            if isinstance(action, Publish):
                self._agree(action)
        return self

    def now(
        self,
        kind: Callable[..., Event],
        *,
        after_s: float = 0.0,
        incarnation: int | None = None,
        **fields: object,
    ) -> "Story":
        """A fact of this moment; of the incarnation that was reached, unless another is named."""
        self.now_s += after_s
        life = self.state.incarnation if incarnation is None else incarnation
        return self.tell(kind(at_s=self.now_s, incarnation=life, **fields))

    def performed(self, kind: type[A]) -> list[A]:
        """Every action of ``kind`` so far, and forget all actions."""
        found: list[A] = [action for action in self.actions if isinstance(action, kind)]
        self.actions.clear()
        return found

    def goes_on_from(self, state: RunState) -> "Story":
        """As if the story so far had led to ``state``."""
        self.state, self._plan = state, state.plan
        return self

    def begins(self, point: RecoveryPoint | None = None) -> "Story":
        """Up to the moment when all workers of incarnation 0 run."""
        self.starts().chose(point).prepared()
        assert self.phase is Phase.RUNNING
        assert len(self.performed(Spawn)) == 1
        return self

    def recovers(self, point: RecoveryPoint | None = None) -> "Story":
        """From the last death to the workers of the next incarnation; a wait in between is waited for."""
        self.drained().chose(point)
        if self.phase is Phase.BACKING_OFF:
            self.now_s = self.plan.start_at_s
            self.rang(Timer.BACKOFF)
        self.prepared()
        assert self.phase is Phase.RUNNING
        return self

    def starts(
        self, node: NodeId = NODE, *, notices: tuple[Notice, ...] = (), stop_by_s: float | None = None
    ) -> "Story":
        self._plan = plan_to_go_on_from(self.state) if self.state.given_up else self._plan
        return self.now(RunStarted, node=node, boot=BootId("b"), pid=1, notices=notices, stop_by_s=stop_by_s)

    def chose(self, point: RecoveryPoint | None = None, *, periodic_step: int | None = None) -> "Story":
        return self.now(RecoveryPointChosen, point=point, refused=(), periodic_step=periodic_step)

    def planned(self, plan: Plan) -> "Story":
        return self.now(PlanAdopted, incarnation=plan.incarnation, plan=plan)

    def found_nothing_whole(self, why: str = "3 found, none whole") -> "Story":
        return self.now(NothingWhole, refused=(), why=why)

    def prepared(self, port: int = 29500) -> "Story":
        return self.now(Prepared, master_port=port)

    def could_not_prepare(self, code: int, why: str) -> "Story":
        return self.now(PrepareFailed, exit_code=code, why=why)

    def killed(self, rank: int, signum: int = SIGKILL, *, after_s: float = 0.0) -> "Story":
        return self.ended(rank, Signaled(signum=signum), after_s=after_s)

    def returned(self, rank: int, code: int = 0, *, after_s: float = 0.0) -> "Story":
        return self.ended(rank, Exited(code=code), after_s=after_s)

    def ended(
        self,
        rank: int,
        status: ExitStatus,
        *,
        after_s: float = 0.0,
        incarnation: int | None = None,
        done: bool = False,
    ) -> "Story":
        return self.now(
            WorkerExit,
            after_s=after_s,
            incarnation=incarnation,
            node=NODE,
            rank=rank,
            pid=100 + rank,
            status=status,
            done=done,
        )

    def can_rejoin(self, *ranks: int) -> "Story":
        for rank in ranks:
            self.now(RankCanRejoin, rank=rank)
        return self

    def examined(self, *notes: DeathNote) -> "Story":
        """The dead of this incarnation, whose last words have been read."""
        dead = tuple(one.rank for one in self.state.life.exits)
        return self.now(DeathsExamined, dead=dead, notes=notes)

    def rejoined(self, *ranks: int, step: int = 41) -> "Story":
        for rank in ranks:
            self.now(RankRejoined, rank=rank, step=step)
        return self

    def cannot_rejoin(self, rank: int, why: str = "out of memory") -> "Story":
        return self.now(RankCannotRejoin, rank=rank, why=why)

    def has_bad_memory(self, rank: int, what: str = "persistent memory fault in 0.weight") -> "Story":
        return self.now(MemoryFaultFound, rank=rank, what=what)

    def is_silent(self, *ranks: int) -> "Story":
        suspicion = Suspicion(front=ranks, behind=ranks, silent_s=1.2, limit_s=1.0, usual_s=0.05)
        return self.now(HangSuspected, suspicion=suspicion)

    def works_after_all(self) -> "Story":
        return self.now(HangDismissed, why="rank 0 reads")

    def is_warned_of(self, rank: int, stance: Activity = Activity.SLEEPING) -> "Story":
        return self.tell(silences.warned(self.now_s, self.state.incarnation, rank, stance))

    def goes_on(self, rank: int, *, paused_s: float = 4.0, warned: bool = True) -> "Story":
        life = self.state.incarnation
        return self.tell(silences.over(self.now_s, life, rank, paused_s=paused_s, warned=warned))

    def hangs(
        self,
        rank: int,
        *,
        step: int | None = 41,
        stance: Activity = Activity.STOPPED,
        proved: bool = False,
    ) -> "Story":
        life = self.state.incarnation
        return self.tell(silences.detected(self.now_s, life, rank, step=step, stance=stance, proved=proved))

    def all_run(self, *, after_s: float = 0.0, port: int = 29500) -> "Story":
        ranks = tuple(sorted(self.state.life.alive))
        return self.now(IncarnationStarted, after_s=after_s, ranks=ranks, master_port=port)

    def never_started(self, rank: int, errno: int, why: str = "could not start it") -> "Story":
        return self.now(SpawnFailed, rank=rank, errno=errno, why=why)

    def scheduler_ended(self, status: ExitStatus) -> "Story":
        return self.now(HelperExit, name="scheduler", pid=99, status=status)

    def reported(self, **step_of: int) -> "Story":
        """``reported(r0=12, r1=11)``: the newest steps of ranks 0 and 1."""
        steps = tuple(RankStep(rank=int(name[1:]), step=step, epoch=2) for name, step in step_of.items())
        return self.now(Heartbeat, steps=steps)

    def heard(self, rank: int, step: int | None) -> "Story":
        return self.now(GaspAcknowledged, rank=rank, step=step)

    def saved(self, rank: int, step: int, *, group: tuple[int, ...] = ()) -> "Story":
        return self.now(
            GaspSaved,
            rank=rank,
            path=f"gasp_{rank}",
            step=step,
            size_bytes=1,
            took_s=0.4,
            replica_group=group,
        )

    def read_back(self, rank: int, *, whole: bool = True) -> "Story":
        return self.now(
            GaspVerified, rank=rank, path=f"gasp_{rank}", whole=whole, why="whole" if whole else "torn"
        )

    def could_not_save(self, rank: int, why: str = "disk full") -> "Story":
        return self.now(GaspFailed, rank=rank, why=why)

    def told_to_stop(
        self, source: StopSource = StopSource.SIGTERM, *, after_s: float = 0.0, late_s: float = 0.0
    ) -> "Story":
        return self.now(StopRequested, after_s=after_s, source=source, late_s=late_s)

    def noticed(self, notice: Notice, *, after_s: float = 0.0) -> "Story":
        return self.now(FaultNotice, after_s=after_s, notice=notice)

    def rang(self, timer: Timer, *, after_s: float = 0.0, incarnation: int | None = None) -> "Story":
        return self.now(TimerFired, after_s=after_s, incarnation=incarnation, timer=timer)

    def drained(self, *notes: DeathNote, stragglers: tuple[int, ...] = ()) -> "Story":
        return self.now(Drained, stragglers=stragglers, swept=0, notes=notes)

    def finished(self, code: int = 0) -> "Story":
        return self.now(RunFinished, exit_code=code, why="over", stopped=False)

    def _agree(self, action: Publish) -> None:
        if self.agreement_is_silent:
            return
        answer = next_step(self.rules, self._plan, {NODE: action.fact}, self.now_s)
        if isinstance(answer, PlanAdopted):
            self._plan = answer.plan
        if isinstance(answer, str):
            return
        if self.answers_wait:
            self._answers.append(answer)
        else:
            self.tell(answer)

    def hears(self) -> "Story":
        """The answers that have waited."""
        answers, self._answers = self._answers, []
        for answer in answers:
            self.tell(answer)
        return self


def rule(**more: object) -> RestartPolicy:
    """The usual policy with something else in it."""
    return replace(POLICY, **more)  # type: ignore[arg-type]
