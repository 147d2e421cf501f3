"""Who may coordinate: a member of the plan, or another supervisor of a member's node, on the same machine.

Pure. Any node could, as far as the store is concerned; but members that cannot hear it go on
training because every *member* has promised to decide nothing, and only they were asked.
"""

from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.topology import BootId
from faultrun.nodes.protocol.lease_deadline import free_to_decide
from faultrun.nodes.values.lease import Lease
from faultrun.nodes.values.membership import (
    COORDINATOR_KEY,
    PLAN_KEY,
    CommonKeys,
    NodeSettings,
    Remembered,
    Stated,
)
from faultrun.nodes.values.roster import Leadership, PlanHeader, PlanPhase, Roster
from faultrun.nodes.values.transaction import Absent, Compare, CreatedAt, Delete, Put, Transaction, Unchanged

_LAST_IN_LINE = 10


def current(common: CommonKeys, own: Stated | None, remembered: Remembered) -> PlanHeader | None:
    """The header, unless it tells the end of a run that was over before this node's supervisor came."""
    if (header := common.header) is None or header.phase is not PlanPhase.FINISHED:
        return header
    if remembered.fenced is not None or remembered.joined:
        return header
    return None if own is not None and own.created > common.header_changed else header


def may_lead(terms: NodeSettings, boot: BootId, header: PlanHeader | None, roster: Roster | None) -> bool:
    """Whether this supervisor may decide for the run, as far as the plan goes."""
    if header is None:
        return True
    if roster is None or header.phase is PlanPhase.FINISHED:
        return False
    return roster.has(terms.node, boot) or is_heir(terms, roster)


def is_heir(terms: NodeSettings, roster: Roster) -> bool:
    """Whether an older supervisor of this node is a member, and is dead because this one is here.

    No node can go on by its promise, then: it gives no answer any more. On another machine it may
    live, unless no node goes on by promises at all.
    """
    entry = roster.entry(terms.node)
    return entry is not None and (not terms.hold or entry.machine == terms.machine != "")


def leads(common: CommonKeys, fact: NodeFact) -> bool:
    """Whether this supervisor is the coordinator."""
    now = common.coordinator
    return now is not None and (now.node, now.boot) == (fact.node, fact.boot)


def may_act(
    terms: NodeSettings,
    boot: BootId,
    header: PlanHeader | None,
    roster: Roster | None,
    lease: Lease,
    now_s: float,
) -> bool:
    """Whether no promise of this node is in the way. Before the first plan no node trains on a promise."""
    if header is None or roster is None or not terms.hold:
        return True
    return free_to_decide(lease, terms.times, now_s, heir=not roster.has(terms.node, boot))


def waits_in_line_s(terms: NodeSettings, boot: BootId, roster: Roster | None) -> float:
    """How long to leave it to those before this node; it spares the store a crowd."""
    place = terms.node_rank or 0
    if roster is not None:
        members = [(entry.node, entry.boot) for entry in roster.entries]
        me = (terms.node, boot)
        place = members.index(me) if me in members else len(members)
    return min(place, _LAST_IN_LINE) * terms.times.election_s


def election(terms: NodeSettings, boot: BootId, common: CommonKeys) -> Transaction:
    """Become the coordinator, if no node is and the plan is still the one that this node knows."""
    office = Leadership(node=terms.node, boot=boot, asked=terms.asked)
    put = Put(key=COORDINATOR_KEY, value=office, leased=True)
    compares = (Absent(key=COORDINATOR_KEY), plan_as_seen(common))
    return Transaction(what=f"elect node {terms.node}", compares=compares, then=(put,))


def resignation(common: CommonKeys) -> Transaction:
    """Leave the place to a member of the plan."""
    what = "resign: this node is no member of the plan"
    return Transaction(what=what, compares=(still_coordinator(common),), then=(Delete(key=COORDINATOR_KEY),))


def still_coordinator(common: CommonKeys) -> Compare:
    """The fencing token: this node's own term of office goes on."""
    return CreatedAt(key=COORDINATOR_KEY, created=common.token)


def plan_as_seen(common: CommonKeys) -> Compare:
    """The plan was not written since it was read."""
    if common.header is None:
        return Absent(key=PLAN_KEY)
    return Unchanged(key=PLAN_KEY, changed=common.header_changed)
