"""What a coordinator decides from: the plan that the next one follows, who is lost, one statement a node.

Pure; ``nodes.protocol.coordinator`` decides.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from faultrun.core.plan.restart_budget import nothing_spent
from faultrun.core.plan.standing import of_this_run
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.model.topology import BootId, NodeId
from faultrun.nodes.protocol.election import plan_as_seen, still_coordinator
from faultrun.nodes.values.membership import NODES, CommonKeys, NodeKeys, NodeSettings, Stated, node_key
from faultrun.nodes.values.roster import PlanHeader, Roster, RosterEntry
from faultrun.nodes.values.transaction import Absent, Compare, NothingNewer, Operation, Transaction

LONGEST_PATH = 300
"""Every node watches what is noted of it; it is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorInput:
    """What a coordinator decides from. ``header`` is None before the first plan and after a run's end.

    ``finished`` are supervisors that said directly that their ranks of the plan's incarnation all ended with
    0: one that was cut off from the store, or left without it, states nothing there.
    """

    terms: NodeSettings
    common: CommonKeys
    nodes: NodeKeys
    header: PlanHeader | None
    roster: Roster | None
    body: Plan | None
    finished: frozenset[tuple[NodeId, BootId]] = frozenset()

    @property
    def plan(self) -> Plan | None:
        """The plan that the next one follows."""
        if self.roster is None or self.body is None:
            return None
        plan = self.roster.completes(self.body)
        if self.header is not None or (before := self.common.header) is None:
            return plan
        plan = replace(plan, slots=None)  # it begins with all that are asked for
        if before.stopped:
            return plan
        # A user who starts a run again that was given up has changed something.
        return None if before.exit_code == 0 else replace(plan, ledger=nothing_spent(plan.ledger))

    @property
    def saved(self) -> str:
        """A checkpoint that the run has, by what was noted before or is stated now; empty: none is known."""
        before, plan = self.common.header, self.plan
        if before is None or plan is None:
            return ""
        facts = (one.statement.fact for one in statements(self).values())
        told = (of_this_run(plan, fact).saved for fact in facts)
        resumed = "" if plan.point is None else plan.point.path
        return before.saved or next((path[:LONGEST_PATH] for path in (resumed, *told) if path), "")

    @property
    def lost(self) -> tuple[RosterEntry, ...]:
        """Members whose statement has ended."""
        if self.header is None or self.roster is None:
            return ()
        here = {(one.node, one.boot) for one in self.nodes.stated}
        return tuple(entry for entry in self.roster.entries if (entry.node, entry.boot) not in here)


def statements(given: CoordinatorInput) -> dict[NodeId, Stated]:
    """One statement for each node: its member's while that lives, else of the supervisor that came last.

    Who stands there under a member's name under another boot waits for that one's end. Before the
    first plan of a run no node counts who belonged to the one before.
    """
    found: dict[NodeId, Stated] = {}
    roster = given.roster if given.header is not None else None
    ended = 0 if given.header is not None else given.common.header_changed
    for one in sorted(given.nodes.stated, key=lambda one: one.created):
        member = roster is not None and roster.has(one.node, one.boot)
        before = found.get(one.node)
        taken = before is not None and roster is not None and roster.has(before.node, before.boot)
        if member or (one.created > ended and one.statement.asked == given.terms.asked and not taken):
            found[one.node] = one
    return found


def namesakes(given: CoordinatorInput) -> tuple[NodeId, ...]:
    """Nodes of which several supervisors are there before the first plan: hosts of one name, perhaps."""
    if given.header is not None:
        return ()
    counts = Counter(one.node for one in given.nodes.stated if one.created > given.common.header_changed)
    return tuple(sorted(node for node, number in counts.items() if number > 1))


def numbered(given: CoordinatorInput, by_node: Mapping[NodeId, Stated]) -> dict[NodeId, NodeFact]:
    """The facts, with arrivals counted (at the start, by node rank first), and who raised the alarm first.

    And with the node rank that each was started with.
    """

    def order(one: Stated) -> tuple[bool, int, int]:
        rank = one.statement.node_rank if given.header is None else None
        return rank is None, rank or 0, one.created

    plan = given.plan
    alarm = None if plan is None else given.common.alarm(plan.incarnation)
    arrived = {one.node: at for at, one in enumerate(sorted(by_node.values(), key=order), 1)}
    return {
        node: replace(
            one.statement.fact,
            arrived=arrived[node],
            seat=one.statement.node_rank,
            alarm=1 if alarm is not None and alarm.node == node else 0,
        )
        for node, one in by_node.items()
    }


MOST_COMPARES = 100
"""etcd takes 128 operations in a transaction by default."""


def guarded(given: CoordinatorInput, what: str, *writes: Operation) -> Transaction:
    """Only as coordinator, over the plan as it was read, and while the lost are lost."""
    compares = (still_coordinator(given.common), plan_as_seen(given.common), *_still_lost(given))
    return Transaction(what=what, compares=compares, then=writes)


def _still_lost(given: CoordinatorInput) -> tuple[Compare, ...]:
    """A member that was held comes back under its own boot, and this node's view of that may be older."""
    if len(given.lost) > MOST_COMPARES:
        return (NothingNewer(key=NODES, revision=given.nodes.revision),)
    return tuple(Absent(key=node_key(entry.node, entry.boot)) for entry in given.lost)


def name_of(value: Roster | Plan | tuple[RosterEntry, ...]) -> str:
    """A name for what is written once: another value gets another name."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
