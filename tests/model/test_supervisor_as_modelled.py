"""The supervisor of the model does what ``decide`` does, step by step, whatever it is told and when."""

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from faultrun.core.phases.decide import decide
from faultrun.model.actions import Publish
from faultrun.model.events import (
    Drained,
    Event,
    GoGiven,
    PlanAdopted,
    Prepared,
    RecoveryPointChosen,
    RunFinished,
    RunStarted,
    WorkerExit,
)
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.observed.agreement import IncarnationOver, LookAgain, MembershipLost
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.run import Phase, RunState
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from model.cluster import Node, Setting, State, Word
from model.doings import told
from model.environment import training
from model.mind import Move
from model.work import ended, worked
from support.stories.story import WINDOWS, first_plan

SETTING = Setting(1, 0, 0)
PHASES = {
    Phase.SURVEYING: "look",
    Phase.AWAITING_PLAN: "idle",
    Phase.PREPARING: "prepare",
    Phase.AWAITING_GO: "ready",
    Phase.RUNNING: "run",
    Phase.DRAINING: "drain",
    Phase.FINISHED: "ended",
}
KILLED = Signaled(signum=9)
HERE = Topology(nodes=(NodeSlots(node=NodeId("a"), slots=1), NodeSlots(node=NodeId("b"), slots=1)))


class Real:
    """A node that decides for itself; its workers, disk and preparations answer when the test says so."""

    def __init__(self) -> None:
        self.state = RunState(node=NodeId("a"), topology=HERE, windows=WINDOWS)
        self.said: NodeFact | None = None
        self.boots = 0
        self.hears(RunStarted(at_s=0, incarnation=-1, node=NodeId("a"), boot=BootId("0"), pid=1))
        self.goes_on()

    def hears(self, event: Event) -> None:
        step = decide(self.state, event)
        self.state = step.state
        for action in step.actions:
            if isinstance(action, Publish):
                self.said = action.fact

    def is_told(self, what: str, number: int) -> None:
        life = self.state.incarnation
        match what:
            case "plan":
                boots = (BootId(str(self.boots)), BootId("b"))
                plan = replace(first_plan(2, incarnation=number, topology=HERE), boots=boots)
                self.hears(PlanAdopted(at_s=0, incarnation=number, plan=plan))
            case "go":
                self.hears(GoGiven(at_s=0, incarnation=number, master_addr="a", master_port=1))
            case "over":
                self.hears(IncarnationOver(at_s=0, incarnation=number, why="over"))
            case "look":
                self.hears(LookAgain(at_s=0, incarnation=life, number=number))
            case "end":
                self.hears(RunFinished(at_s=0, incarnation=life, exit_code=0, why="over"))
            case "fence":
                self.boots += 1
                self.hears(
                    MembershipLost(at_s=0, incarnation=life, why="alone", boot=BootId(str(self.boots)))
                )
                self.ends_ranks()
            case "done" if self.state.phase is Phase.RUNNING:
                self.ends_ranks(Exited(code=0))
            case _:
                pass

    def ends_ranks(self, how: ExitStatus = KILLED) -> None:
        for rank in sorted(self.state.life.alive):
            life = self.state.incarnation
            self.hears(WorkerExit(at_s=0, incarnation=life, node=NodeId("a"), rank=rank, pid=1, status=how))
        if self.state.phase is Phase.SWEEPING:
            self.hears(Drained(at_s=0, incarnation=self.state.incarnation, stragglers=(), swept=0, notes=()))

    def goes_on(self) -> None:
        life = self.state.incarnation
        match self.state.phase:
            case Phase.PREPARING:
                self.hears(Prepared(at_s=0, incarnation=life, master_port=1))
            case Phase.DRAINING:
                self.ends_ranks()
            case _:
                while self.state.phase is Phase.SURVEYING:
                    self.hears(RecoveryPointChosen(at_s=0, incarnation=life, point=None, refused=()))


class Modelled:
    """The same node in the model."""

    def __init__(self) -> None:
        first = training(SETTING)
        joined = Node(phase="idle", word=Word(-1, "joined"))
        self.world: State = first._replace(nodes=(joined,))

    @property
    def node(self) -> Node:
        return self.world.nodes[0]

    def is_told(self, what: str, number: int) -> None:
        done = what == "done" and self.node.phase == "run"
        node = ended(self.node) if done else told(self.node, Move(what, number))
        self.world = self.world._replace(nodes=(node,))

    def goes_on(self) -> None:
        for step in worked(SETTING, self.world, 0, self.node):
            self.world = step.state
            return


def numbers(what: str, node: Node, offset: int) -> int:
    return node.look + 1 if what == "look" else node.incarnation + offset


TOLD = st.tuples(
    st.sampled_from(["plan", "go", "over", "look", "end", "done", "fence", "on", "on", "plan", "go"]),
    st.sampled_from([-1, 0, 1, 1, 0]),
)


@example([("plan", 1), ("on", 0), ("go", 0), ("fence", 0), ("end", 0)])
@example([("plan", 1), ("on", 0), ("go", 0), ("done", 0), ("look", 0), ("on", 0), ("look", 0), ("on", 0)])
@given(st.lists(TOLD, max_size=30))
@settings(max_examples=300)
def test_decide_goes_where_the_model_says(told_: list[tuple[str, int]]) -> None:
    real, modelled = Real(), Modelled()
    for what, offset in told_:
        node = modelled.node
        if what == "on":
            modelled.goes_on()
            real.goes_on()
        elif what != "fence" or node.phase in ("ready", "run", "drain"):
            number = numbers(what, node, offset)
            modelled.is_told(what, number)
            real.is_told(what, number)
        assert stands(real) == stands_in_the_model(modelled.node), (what, offset)


def stands(real: Real) -> tuple[object, ...]:
    said = real.said
    assert said is not None
    phase = PHASES[real.state.phase]
    boot = real.state.boot if phase in ("look", "ended") else said.boot
    return (
        phase,
        real.state.incarnation,
        boot,
        said.word.value,
        said.incarnation,
        _told_look(phase, said.resume.look),
    )


def stands_in_the_model(node: Node) -> tuple[object, ...]:
    phase = "look" if node.phase == "fenced" else node.phase
    word = node.word
    return (
        phase,
        node.incarnation,
        str(node.boot),
        word.status,
        word.incarnation,
        _told_look(phase, word.look),
    )


def _told_look(phase: str, look: int) -> int:
    """Only who waits for a plan says how often it has looked."""
    return look if phase == "idle" else 0
