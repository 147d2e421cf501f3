"""A node that is set aside has the card of the incident for which it was, though no plan is for it."""

from dataclasses import replace
from pathlib import Path

from faultrun.model.events import Event, PlanAdopted, RunFinished
from faultrun.model.exits import Exited
from faultrun.model.incident import Aftermath, Cause, Incident
from faultrun.model.observed.agreement import LookAgain, OwnNodeAside
from faultrun.model.observed.elastic import NodeAside, SlotLedger, Vacant
from faultrun.model.plan import Reason
from faultrun.model.run import Drain, Phase, Step
from faultrun.model.topology import NodeId, NodeSlots, Topology
from faultrun.observe.console.reporters import ConsoleReporter
from support.stories.specs import a_spec
from support.stories.story import first_plan, in_phase

B, WHY = NodeId("b"), "its ranks failed 2 times in a row while others worked"
FELL = Incident(
    number=2,
    incarnation=1,
    at_s=5.0,
    cause=Cause.EXIT,
    rank=1,
    status=Exited(code=3),
    node=B,
    at_utc="2026-11-23 21:00:00+00:00",
)
PLAN = first_plan(
    1,
    incarnation=2,
    topology=Topology(nodes=(NodeSlots(node=NodeId("a"), slots=1),)),
    reason=Reason.FAULT,
    aftermath=Aftermath(incident=FELL, world_size=2),
    slots=SlotLedger(
        vacant=(Vacant(seat=1, node=B, incarnation=2, why=WHY),),
        nodes=(NodeAside(node=B, incarnation=2, why=WHY),),
    ),
)


def card(folder: Path, *events: Event) -> str:
    """What a reporter leaves in the folder of a node that hears this in a row."""
    folder.mkdir()
    reporter = ConsoleReporter(a_spec(workers=1), folder, lambda _: None)
    state = in_phase(Phase.AWAITING_PLAN, 1)
    state = replace(state, life=replace(state.life, drain=Drain(incident=FELL)))
    for event in (LookAgain(at_s=5, incarnation=1, number=1), *events):
        reporter.tell(event, Step(state=state, why=""))
    return (folder / "incident_2.txt").read_text()


def test_it_is_the_text_that_the_others_have_and_says_why_and_what_is_waited_for(tmp_path: Path) -> None:
    own = OwnNodeAside(at_s=6, incarnation=1, why=WHY, plan=PLAN)
    others = card(tmp_path / "a", PlanAdopted(at_s=6, incarnation=2, plan=PLAN))
    assert card(tmp_path / "b", own) == others
    until = "it gets no rank until its --health_check passes"
    assert f"\n  workers   1 of 2 nodes, without node b: {WHY}; {until}\n" in others
    end = RunFinished(at_s=9, incarnation=1, exit_code=143, why="stopped by SIGTERM", stopped=True)
    assert card(tmp_path / "late", own, end) == others, "how the run ended is no word on this incident"
