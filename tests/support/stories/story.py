"""A run told as a story: feed the facts, read what the supervisor did and why.

The agreement of a single node answers by itself, by the function that the
real one uses; everything else happens only when the story says so.
"""

from dataclasses import replace
from typing import TypeVar

from faultrun.core.phases.begin import plan_to_go_on_from
from faultrun.core.phases.decide import decide
from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.model.actions import Action, Publish, Spawn
from faultrun.model.checkpoint import Kind, RankFile, RecoveryPoint, Shared
from faultrun.model.events import Event, PlanAdopted, RunStarted, Timer
from faultrun.model.incident import Card, Incident
from faultrun.model.observed.platform_notice import Notice
from faultrun.model.plan import Ledger, Plan, Reason
from faultrun.model.run import Drain, Life, Phase, Run, RunState, Step
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.spec.windows import Deadline, Windows
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from support.stories.facts import Facts

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


class Story(Facts):
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
    def deadline(self) -> Deadline:
        assert self.state.life.drain is not None
        return self.state.life.drain.deadline

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

    def _agree(self, action: Publish) -> None:
        if self.agreement_is_silent:
            return
        answer = next_step(self.rules, self._plan, {NODE: action.fact}, self.now_s)
        if isinstance(answer, PlanAdopted):
            self._plan = answer.plan
        if isinstance(answer, Waiting):
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
