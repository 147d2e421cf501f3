"""Tells ``decide_standbys`` what happens to the standbys of one node."""

from dataclasses import dataclass, field, replace

from faultrun.core.standby.policy import decide_standbys
from faultrun.core.standby.state import StandbyState
from faultrun.model.actions import Action
from faultrun.model.events import (
    Event,
    FirstStep,
    GoGiven,
    IncarnationStarted,
    Timer,
    TimerFired,
    WorkerExit,
    WorkerStarted,
)
from faultrun.model.exits import Signaled
from faultrun.model.observed.standby import RoomFound, StandbyChanged, StandbyPhase
from faultrun.model.run import Phase, RunState, Step
from faultrun.model.topology import NodeId, Topology
from support.stories.real_and_fake_node import Wanted, spawn_of
from support.stories.story import NODE, STAYING, in_phase


@dataclass(slots=True)
class Tale:
    """Tells ``decide_standbys`` what happens, and keeps what it answered last."""

    standbys: StandbyState = field(default_factory=lambda: StandbyState(ranks=(0, 1)))
    now_s: float = 100.0
    workers: int = 2
    node: NodeId = NODE
    seats: Topology | None = None
    said: tuple[Action, ...] = ()

    def hears(self, event: Event, phase: Phase = Phase.RUNNING) -> "Tale":
        state = in_phase(phase, self.workers)
        step = Step(state=replace(state, node=self.node, topology=self.seats or state.topology), why="")
        self.standbys, step = decide_standbys(self.standbys, event, step)
        self.said = step.actions
        return self

    def workers_start(self, *standbys: int) -> "Tale":
        for rank in standbys:
            self.hears(
                WorkerStarted(at_s=self.now_s, incarnation=0, node=NODE, rank=rank, pid=1, standby=True)
            )
        return self.hears(IncarnationStarted(at_s=self.now_s, incarnation=0, ranks=(0, 1), master_port=20000))

    def train(self) -> "Tale":
        return self.hears(FirstStep(at_s=self.now_s, incarnation=0, step=1))

    def finds_room(self, at_once: int = 1, phase: Phase = Phase.RUNNING) -> "Tale":
        found = RoomFound(at_s=self.now_s, incarnation=0, at_once=at_once, why="many processors")
        return self.hears(found, phase)

    def time_comes(self, timer: Timer = Timer.STANDBY, phase: Phase = Phase.RUNNING) -> "Tale":
        return self.hears(TimerFired(at_s=self.now_s, incarnation=0, timer=timer), phase)

    def is_seated(self, *ranks: int) -> "Tale":
        """Workers of these ranks are being started."""
        state = in_phase(Phase.RUNNING, self.workers)
        go = GoGiven(at_s=self.now_s, incarnation=0, master_addr="127.0.0.1", master_port=1)
        spawn = replace(spawn_of(Wanted(workers=len(ranks))), ranks=ranks)
        self.standbys, step = decide_standbys(
            self.standbys, go, Step(state=replace(state, node=self.node), actions=(spawn,), why="")
        )
        self.said = step.actions
        return self

    def standby(self, rank: int, state: StandbyPhase, phase: Phase = Phase.RUNNING) -> "Tale":
        changed = StandbyChanged(at_s=self.now_s, incarnation=0, rank=rank, state=state, why="because")
        return self.hears(changed, phase)

    def a_worker_dies(self) -> "Tale":
        exit_ = WorkerExit(
            at_s=self.now_s, incarnation=0, node=NODE, rank=1, pid=1, status=Signaled(signum=9)
        )
        return self.hears(exit_, Phase.DRAINING)

    def has_two_ready(self) -> "Tale":
        self.workers_start().train().time_comes()
        for rank in (0, 1):
            self.standby(rank, StandbyPhase.STARTING).standby(rank, StandbyPhase.READY)
        return self


def rejoinable(*ranks: int, phase: Phase = Phase.RUNNING) -> RunState:
    """Two workers of a run whose survivors may stay, of which ``ranks`` can."""
    state = in_phase(phase, 2)
    return replace(state, life=replace(state.life, rejoinable=frozenset(ranks)), windows=STAYING)
