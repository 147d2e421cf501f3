"""Who could take a vacant seat gets it right after a save; a node that was set aside says that it is well."""

from dataclasses import replace

from faultrun.core.phases.decide import decide
from faultrun.model.actions import Publish, RaiseAlarm
from faultrun.model.incident import Cause
from faultrun.model.observed.agreement import OwnNodeAside
from faultrun.model.observed.elastic import NodesWaiting, SaveWhileNodesWait, SlotLedger, SlotsUsable, Vacant
from faultrun.model.run import Phase, Run, RunState, Step
from faultrun.model.topology import NodeId
from support.stories.story import NODE, first_plan, in_phase

B, D = NodeId("b"), NodeId("d")
LESS = SlotLedger(vacant=(Vacant(seat=1, node=B, incarnation=0, why="it was lost"),))


def training(slots: SlotLedger | None = LESS) -> RunState:
    state = in_phase(Phase.RUNNING, 2)
    life = replace(state.life, alive=frozenset({0, 1}))
    return replace(state, run=Run(plan=first_plan(2, slots=slots)), life=life)


def waiting(state: RunState, *nodes: NodeId) -> RunState:
    return decide(state, NodesWaiting(at_s=1, incarnation=0, nodes=nodes)).state


def saved(state: RunState) -> Step:
    return decide(state, SaveWhileNodesWait(at_s=2, incarnation=0, path="ck"))


def test_right_after_a_save_all_ranks_save_and_leave_and_nothing_has_failed() -> None:
    state = waiting(training(), D)
    assert state.phase is Phase.RUNNING
    step = saved(state)
    assert step.state.phase is Phase.DRAINING
    incident = step.state.life.incident
    assert incident is not None
    assert (incident.cause, incident.explanation) == (Cause.GROWTH, "node d is here: 1 node more")
    assert any(isinstance(action, RaiseAlarm) for action in step.actions)


def test_it_goes_on_while_nobody_waits_any_more_no_seat_is_vacant_or_the_run_has_to_stay_small() -> None:
    assert saved(training()).state.phase is Phase.RUNNING
    assert saved(waiting(waiting(training(), D))).state.phase is Phase.RUNNING
    assert saved(waiting(training(None), D)).state.phase is Phase.RUNNING
    small = replace(LESS, stays_small="no more nodes: its state is sharded")
    assert saved(waiting(training(small), D)).why == "no more nodes: its state is sharded"


def test_a_node_without_ranks_says_once_that_it_is_well() -> None:
    state = in_phase(Phase.AWAITING_PLAN, 2)
    now = {"at_s": 1.0, "incarnation": state.incarnation}
    told = decide(state, OwnNodeAside(**now, why="its ranks failed"))  # type: ignore[arg-type]
    assert (told.state, told.actions) == (state, ())
    step = decide(state, SlotsUsable(**now, node=NODE, slots=(0, 1)))  # type: ignore[arg-type]
    (said,) = step.actions
    assert isinstance(said, Publish)
    assert said.fact.slots.usable == (0, 1)
    assert decide(step.state, SlotsUsable(**now, node=NODE, slots=(0, 1))).actions == ()  # type: ignore[arg-type]
