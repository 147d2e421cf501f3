"""Two nodes and a spare that really decide: one fault at any moment, statements and answers in any order.

What is explored are all interleavings. Whatever a node has to do by itself is done at once; what
travels (a statement to the coordinator, an answer to a node) travels in its own order, at any time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from faultrun.core.phases.decide import decide
from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.model.actions import (
    Action,
    ExamineDeaths,
    FindRecoveryPoint,
    FreeSurvivors,
    Kill,
    Prepare,
    Publish,
    RaiseAlarm,
    RequestGasp,
    Spawn,
    StartTimer,
    Sweep,
)
from faultrun.model.events import (
    Drained,
    Event,
    GoGiven,
    PlanAdopted,
    Prepared,
    PrepareFailed,
    RecoveryPointChosen,
    RunFinished,
    RunStarted,
    Timer,
    TimerFired,
    WorkerExit,
)
from faultrun.model.exits import Exited, Signaled
from faultrun.model.observed.agreement import IncarnationOver, MembershipLost
from faultrun.model.observed.node_fact import NodeDone, NodeFact
from faultrun.model.observed.rejoin import DeathsExamined, RankCanRejoin, RankRejoined, SurvivorsFreed
from faultrun.model.plan import Plan
from faultrun.model.run import Phase, RunState
from faultrun.model.spec.windows import Windows
from faultrun.model.stop import StopRequested, StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from support.stories.story import POLICY, STAYING, WINDOWS

A, B, SPARE = NodeId("a"), NodeId("b"), NodeId("c")
TWO = Topology(nodes=(NodeSlots(node=A, slots=1), NodeSlots(node=B, slots=1)))
RULES = Rules(topology=TWO, policy=POLICY)
FOUR = replace(TWO, nodes=tuple(replace(seat, slots=2) for seat in TWO.nodes))


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node that decides for itself. ``said`` has not reached the coordinator, ``told`` not the node.

    ``raised`` are alarms for the others; all that hear of one tell no other.
    """

    state: RunState
    said: tuple[NodeFact, ...] = ()
    told: tuple[Event, ...] = ()
    raised: tuple[RaiseAlarm, ...] = ()
    done: frozenset[int] = frozenset()
    cannot_prepare: bool = False
    lost: bool = False

    def hears(self, event: Event) -> "Node":
        return heard(self, event)

    def answers(self, action: Action) -> Iterator[Event]:
        life = self.state.incarnation
        match action:
            case FindRecoveryPoint():
                yield RecoveryPointChosen(at_s=0, incarnation=life, point=None, refused=())
            case Prepare() if self.cannot_prepare:
                yield PrepareFailed(at_s=0, incarnation=life, exit_code=78, why="no such key")
            case Prepare():
                yield Prepared(at_s=0, incarnation=life, master_port=1)
            case RequestGasp(ranks=ranks) | Kill(ranks=ranks):
                yield from (self.exit(rank, Signaled(signum=15)) for rank in ranks & self.state.life.alive)
            case Sweep():
                yield Drained(at_s=0, incarnation=life, stragglers=(), swept=0, notes=())
            case FreeSurvivors():
                yield SurvivorsFreed(at_s=0, incarnation=life, meeting_port=1)
            case ExamineDeaths(dead=dead):
                yield DeathsExamined(at_s=0, incarnation=life, dead=dead, notes=())
            case Spawn(ranks=ranks, plan=plan) if not plan.kept:
                yield from (RankCanRejoin(at_s=0, incarnation=life, rank=rank) for rank in ranks)
            case StartTimer(timer=Timer.BACKOFF):
                yield TimerFired(at_s=1e9, incarnation=life, timer=Timer.BACKOFF)

    def exit(self, rank: int, status: Exited | Signaled) -> WorkerExit:
        node, life = self.state.node, self.state.incarnation
        return WorkerExit(at_s=0, incarnation=life, node=node, rank=rank, pid=1, status=status)

    def starts(self, boot: str) -> "Node":
        now = {"at_s": 0, "incarnation": self.state.incarnation}
        started = RunStarted(**now, node=self.state.node, boot=BootId(boot), pid=1)  # type: ignore[arg-type]
        return replace(self, said=(), told=()).hears(started)

    @property
    def has_a_word(self) -> bool:
        return not self.lost and bool(self.said or self.told)

    def rejoins(self) -> "Node":
        """Its ranks are in one group with all the others."""
        for rank in sorted(self.state.life.rejoining):
            now: dict[str, Any] = {"at_s": 0, "incarnation": self.state.incarnation, "rank": rank}
            self = self.hears(RankRejoined(**now, step=1))  # noqa: PLW0642
            self = self.hears(RankCanRejoin(**now))  # noqa: PLW0642
        return self


@cache  # a node hears the same in many worlds
def heard(node: Node, event: Event) -> Node:
    """The node after this fact, and after all that it then has to do by itself."""
    queue = [event]
    while queue:
        step = decide(node.state, queue.pop(0))
        node = replace(node, state=step.state)
        for action in step.actions:
            if isinstance(action, Publish):
                done = {action.fact.incarnation} if isinstance(action.fact.status, NodeDone) else set[int]()
                node = replace(node, said=(*node.said, action.fact), done=node.done | done)
            if isinstance(action, RaiseAlarm) and action.stop is None:
                node = replace(node, raised=(*node.raised, action))
            queue += node.answers(action)
    return node


@dataclass(frozen=True, kw_only=True)
class World:
    nodes: tuple[Node, ...]
    plan: Plan | None = None
    seen: tuple[tuple[NodeId, NodeFact], ...] = ()
    answers: tuple[Event, ...] = ()
    rules: Rules = RULES
    faults: int = 1
    trains: bool = True  # ranks may finish
    finished: bool = False

    def after(self) -> Iterator["World"]:
        """Every world that may come next."""
        for at, node in enumerate(self.nodes):
            if node.lost or node.state.done:
                continue
            if node.told:
                yield self.put(at, replace(node, told=node.told[1:]).hears(node.told[0]))
            if node.said:
                yield self.put(at, replace(node, said=node.said[1:])).coordinated(node.said[0])
            if not self.is_one_group and not any(one.has_a_word for one in self.nodes):
                yield from self.waited_in_vain(at, node)
            if self.trains and node.state.life.alive and node.state.phase is Phase.RUNNING:
                yield self.put(at, node.hears(node.exit(min(node.state.life.alive), Exited(code=0))))
            if self.faults:
                yield from (replace(one, faults=self.faults - 1) for one in self.struck(at, node))
        if self.is_one_group:
            yield replace(self, nodes=tuple(node.rejoins() for node in self.nodes))

    @property
    def is_one_group(self) -> bool:
        """Whether all ranks of the plan live and are on their way into its group."""
        if self.plan is None or not self.plan.kept:
            return False
        there = [node.state for node in self.nodes if node.state.node in members(self.plan) and not node.lost]
        return len(there) == len(members(self.plan)) and all(
            state.incarnation == self.plan.incarnation
            and state.phase is Phase.RUNNING
            and state.life.rejoining == state.life.alive == {*self.plan.topology.ranks_of(state.node)}
            for state in there
        )

    def struck(self, at: int, node: Node) -> Iterator["World"]:
        for rank in node.state.life.alive:
            yield self.put(at, node.hears(node.exit(rank, Signaled(signum=11))))
        yield from self.waited_in_vain(at, node)
        life = node.state.incarnation
        asked = StopRequested(at_s=0, incarnation=life, source=StopSource.CONTROL)
        if at < 2:
            yield self.put(at, node.hears(asked))
            yield self.put(at, replace(node, cannot_prepare=True))
        yield self.put(at, replace(node.starts("again"), told=self.answers))
        if at < 2 and len(self.nodes) > 2:
            yield self.put(at, replace(node, lost=True)).coordinated(None)
        if node.state.phase is Phase.RUNNING:
            yield self.put(at, node.hears(MembershipLost(at_s=0, incarnation=life, why="no lease")))

    def waited_in_vain(self, at: int, node: Node) -> Iterator["World"]:
        if node.state.phase is Phase.REPLACING or node.state.life.rejoining:
            late = TimerFired(at_s=99, incarnation=node.state.incarnation, timer=Timer.REJOIN)
            yield self.put(at, node.hears(late))

    def put(self, at: int, node: Node) -> "World":
        """An alarm travels like an answer, and past the coordinator."""
        fell = node.state.life.incident is not None and self.nodes[at].state.life.incident is None
        alarm = IncarnationOver(at_s=0, incarnation=node.state.incarnation, why="a peer fell")
        told: tuple[Event, ...] = (
            (alarm,) if fell and not node.raised and node.state.phase is not Phase.REPLACING else ()
        )
        told += tuple(replace(alarm, incarnation=one.incarnation, stays=one.stays) for one in node.raised)
        node = replace(node, raised=())
        others = tuple(replace(one, told=(*one.told, *told)) for one in self.nodes)
        return replace(self, nodes=(*others[:at], node, *others[at + 1 :]))

    def coordinated(self, fact: NodeFact | None) -> "World":
        facts = dict(self.seen) | ({} if fact is None else {fact.node: fact})
        lost = {node.state.node for node in self.nodes if node.lost}
        here = {node: said for node, said in facts.items() if node not in lost}
        answer = next_step(self.rules, self.plan, here, 0.0)
        self.check(answer)
        seen = replace(self, seen=tuple(sorted(facts.items())))
        if isinstance(answer, Waiting) or answer in self.answers[-1:]:
            return seen
        answers = (answer,) if isinstance(answer, PlanAdopted) else (*self.answers, answer)
        nodes = tuple(replace(node, told=(*node.told, answer)) for node in self.nodes)
        plan = answer.plan if isinstance(answer, PlanAdopted) else self.plan
        return replace(
            seen, nodes=nodes, plan=plan, answers=answers, finished=isinstance(answer, RunFinished)
        )

    def check(self, answer: object) -> None:
        """Nothing is started or ended on the word of another incarnation."""
        if self.plan is None:
            return
        taking_part = [node for node in self.nodes if node.state.node in members(self.plan)]
        if isinstance(answer, GoGiven):
            assert {node.state.incarnation for node in taking_part} == {answer.incarnation}
        if isinstance(answer, RunFinished) and answer.exit_code == 0:
            assert all(self.plan.incarnation in node.done for node in taking_part)


def members(plan: Plan) -> list[NodeId]:
    return [seat.node for seat in plan.topology.nodes]


def no_two_incarnations_live(world: World) -> None:
    """But survivors who left their group, beside those that wait for them under the plan that keeps both."""
    living = [node.state for node in world.nodes if node.state.life.alive and not node.lost]
    lives = {state.incarnation for state in living}
    if len(lives) < 2:
        return
    newest = max(lives)
    assert world.plan is not None
    assert world.plan.kept, lives
    assert (world.plan.incarnation, min(lives)) == (newest, newest - 1), lives
    for state in living:
        if state.incarnation == newest:
            assert state.life.rejoining, "ranks are one group while others of the one before live"
        else:
            assert state.phase not in (Phase.RUNNING, Phase.AWAITING_GO), "who trains is kept"


def nobody_waits_for_ever(world: World) -> None:
    """Where nothing travels any more and no rank trains, the run is over everywhere, or lacks a node."""
    living = [node for node in world.nodes if not node.lost]
    if any(node.has_a_word or node.state.life.alive for node in living):
        return
    assert all(node.state.done for node in living), [node.state.phase for node in living]


def staying(
    seats: Topology, faults: int, windows: Windows = STAYING, count: int = 2, *, trains: bool = False
) -> World:
    nodes = tuple(
        Node(state=RunState(node=node, topology=seats, windows=windows)).starts("first")
        for node in (A, B, SPARE)[:count]
    )
    return World(nodes=nodes, faults=faults, trains=trains, rules=replace(RULES, topology=seats))


def explored(start: World) -> set[World]:
    known, border = {start}, [start]
    while border:
        world = border.pop()
        for following in world.after():
            if following not in known:
                known.add(following)
                border.append(following)
                no_two_incarnations_live(following)
                nobody_waits_for_ever(following)
    return known


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "faults", "trains"),
    [
        (2, 1, True),
        pytest.param(2, 2, False, marks=pytest.mark.slow),
        pytest.param(3, 1, False, marks=pytest.mark.slow),
    ],
)
def test_a_fault_at_any_moment_ends_in_an_answer_and_starts_nothing_on_old_words(
    count: int, faults: int, trains: bool
) -> None:
    known = explored(staying(TWO, faults, WINDOWS, count, trains=trains))
    assert any(world.finished for world in known)
    assert max(world.plan.incarnation for world in known if world.plan) == faults
    seated = {node for world in known if world.plan for node in members(world.plan)}
    assert len(seated) == count


def test_survivors_of_two_nodes_stay_or_all_begin_anew_and_no_two_incarnations_train() -> None:
    known = explored(staying(FOUR, 1))  # with two faults it is 70,303 worlds
    assert any(is_whole(world) for world in known)
    assert any(world.plan.incarnation == 2 and not world.plan.kept for world in known if world.plan)
    assert max(world.plan.incarnation for world in known if world.plan) == 2, "given up once"


def is_whole(world: World) -> bool:
    """Whether survivors and newcomers train in one group."""
    there = [node.state for node in world.nodes if node.state.life.alive and not node.lost]
    return (
        world.plan is not None
        and bool(world.plan.kept)
        and len(there) == len(world.nodes)
        and all(
            (one.phase, one.incarnation, one.life.rejoining)
            == (Phase.RUNNING, world.plan.incarnation, frozenset())
            for one in there
        )
    )
