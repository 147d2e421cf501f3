"""What a judgement tells once, and under which words it is remembered. Pure."""

from dataclasses import replace

from faultrun.model.events import GoGiven, PlanAdopted
from faultrun.model.observed.agreement import AgreementSilent, IncarnationOver, LookAgain, PlanElsewhere
from faultrun.model.observed.elastic import NodesWaiting
from faultrun.model.observed.node_fact import NodeFact, NodeReady, WithoutWorkers
from faultrun.nodes.values.membership import Act, Tell, WarnPeers

_HEARS_ANEW = (WithoutWorkers, NodeReady)


def words_of(act: Act, fact: NodeFact) -> str:
    """What is said once, named; empty for what is done until it shows.

    GO each time that it is ready; a plan, and that it is over, whenever it has no ranks: while it looks it
    hears neither.
    """
    boot, stated_s = fact.boot, fact.at_s
    match act:
        case Tell(event=AgreementSilent() | NodesWaiting()):
            return ""
        case Tell(event=LookAgain(number=number)):
            return f"look {number} {act.event.incarnation} {boot}"
        case Tell(event=PlanElsewhere(plan=plan)):
            return f"elsewhere {plan.incarnation} {boot}"
        case Tell(event=IncarnationOver(stays=True)):
            return f"stay {act.event.incarnation} {boot}"
        case Tell(event=GoGiven(incarnation=incarnation)):
            return f"go {incarnation} {stated_s} {boot}"
        case Tell(event=PlanAdopted(incarnation=incarnation)) if isinstance(fact.status, _HEARS_ANEW):
            return f"plan {incarnation} {stated_s} {boot}"
        case Tell(event=IncarnationOver(incarnation=incarnation)) if isinstance(fact.status, _HEARS_ANEW):
            return f"over {incarnation} {stated_s} {boot}"
        case Tell(event=event):
            return f"{type(event).__name__} {event.incarnation} {boot}"
        case WarnPeers(alarm=alarm):
            return f"warn {alarm.incarnation} {alarm.stays} {boot}"
        case _:
            return ""


def as_read(act: Act, revision: int) -> Act:
    """What is told says how much of the store was read by then."""
    return Tell(event=replace(act.event, revision=revision)) if isinstance(act, Tell) else act
