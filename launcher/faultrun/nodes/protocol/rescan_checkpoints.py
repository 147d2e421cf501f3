"""When all nodes look through the checkpoints again: what each has seen may be of before another's last save.

Pure. A node whose ranks are gone looks at once, while others may save as long as their windows allow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from faultrun.core.placement.place import does_without
from faultrun.core.plan.waiting import Waiting
from faultrun.core.recovery.common_point import goes_back
from faultrun.core.recovery.quarantine import quarantined
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.model.topology import NodeId
from faultrun.nodes.protocol.coordinator_input import CoordinatorInput, guarded, name_of
from faultrun.nodes.values.membership import PLAN_KEY
from faultrun.nodes.values.roster import PlanPhase
from faultrun.nodes.values.transaction import Put, Transaction


def look_before(
    given: CoordinatorInput, facts: Mapping[NodeId, NodeFact], plan: Plan, run_s: float
) -> Transaction | Waiting | None:
    """What a lost member saved last is seen by those who look after its end; None once all have.

    Nor may the run go back, because a node looked before another's last save, behind what one node has; nor
    begin anew. A member that has no seat any more may have saved longest, and then it looked no more.
    """
    seated = [facts[seat.node] for seat in plan.topology.nodes]
    left = set(members(given)) - {fact.node for fact in seated}
    again = bool(left) or any(fact.resume.look < 0 for fact in seated)
    again = again or goes_back(plan.point, seated, quarantined(plan.ledger.attempts))
    again = again or (plan.point is None and bool(given.saved))
    fewer = given.plan is not None and does_without(given.plan, plan)
    return _look(given, seated, run_s, again=again or bool(given.lost), fewer=fewer)


def members(given: CoordinatorInput) -> list[NodeId]:
    """The nodes of the plan that is over; none before the first."""
    return [] if given.plan is None else [seat.node for seat in given.plan.topology.nodes]


def look_for_more(
    given: CoordinatorInput,
    facts: Mapping[NodeId, NodeFact],
    nodes: Sequence[NodeId],
    run_s: float,
    *,
    waited: bool,
) -> Transaction | Waiting | None:
    """Have ``nodes`` look again before the run ends without a checkpoint: they may have looked too early."""
    known = [facts[node] for node in nodes if node in facts]
    able = [fact for fact in known if fact.stop is None and fact.failure is None]
    return _look(given, able, run_s, again=True, fewer=waited)


def _look(
    given: CoordinatorInput, seated: Sequence[NodeFact], run_s: float, *, again: bool, fewer: bool
) -> Transaction | Waiting | None:
    """No node has workers any more: have all look ``again``, once; None when these have."""
    if (header := given.header) is None:
        return None
    missing = names_lost(given)
    asked = header.phase is PlanPhase.LOOK and header.missing == missing
    if again and not asked:
        looking = replace(header, phase=PlanPhase.LOOK, look=header.look + 1, missing=missing)
        looking = replace(looking, run_s=run_s, fewer=fewer, saved=given.saved)
        return guarded(given, f"look again, for the {looking.look}. time", Put(key=PLAN_KEY, value=looking))
    behind = [fact.node for fact in seated if asked and fact.resume.look < header.look]
    return Waiting(reason=f"{', '.join(behind)} to look through the checkpoints again") if behind else None


def names_lost(given: CoordinatorInput) -> str:
    """A name for the members that are counted as lost; empty: none is."""
    return name_of(given.lost) if given.lost else ""
