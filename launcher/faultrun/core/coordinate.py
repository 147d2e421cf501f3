"""What the coordinator writes: the answer of ``agree.next_step`` as a transaction with its guards.

Pure. Every write compares the coordinator's own token, the plan as it was read, and that each member
that is counted as lost has not come back since.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from faultrun.core import at_once
from faultrun.core.agree import AWAITS, Rules, last_incident, next_step
from faultrun.core.budget import anew
from faultrun.core.elect import plan_as_seen, still_coordinator
from faultrun.errors import assert_never
from faultrun.model.agreement import IncarnationOver
from faultrun.model.events import GoGiven, PlanAdopted, RunFinished
from faultrun.model.facts import NodeFact, NodeStatus
from faultrun.model.incident import Aftermath
from faultrun.model.membership import (
    BODIES,
    NODES,
    PLAN_KEY,
    ROSTERS,
    SMALL_BODIES,
    CommonKeys,
    NodeKeys,
    Stated,
    Terms,
    alarm_key,
    node_key,
)
from faultrun.model.plan import Plan
from faultrun.model.roster import Alarm, PlanHeader, PlanPhase, Roster, RosterEntry
from faultrun.model.topology import BootId, NodeId, Topology
from faultrun.model.transaction import Absent, Compare, Delete, NothingNewer, Operation, Put, Transaction

MOST_COMPARES = 100
"""etcd takes 128 operations in a transaction by default."""
SMALL_BODY = 4096
"""Characters of its ``repr``: more than its JSON has. A list of files or of many nodes is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """What a coordinator decides from. ``header`` is None before the first plan and after a run's end.

    ``finished`` are supervisors that said directly that their ranks of the plan's incarnation all ended with
    0: one that was cut off from the store, or left without it, states nothing there.
    """

    terms: Terms
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
        before = self.common.header
        if self.header is not None or before is None:
            return plan
        plan = replace(plan, slots=None)  # it begins with all that are asked for
        if before.stopped:
            return plan
        # Whoever starts a run again that was given up has changed something.
        return None if before.exit_code == 0 else replace(plan, ledger=anew(plan.ledger))

    @property
    def lost(self) -> tuple[RosterEntry, ...]:
        """Members whose statement has ended."""
        if self.header is None or self.roster is None:
            return ()
        here = {(one.node, one.boot) for one in self.nodes.stated}
        return tuple(entry for entry in self.roster.entries if (entry.node, entry.boot) not in here)


def coordinated(rules: Rules, office: Office, run_s: float, *, too_late: bool) -> Transaction | str:
    """The write that follows, or why none does yet. ``too_late``: whoever is missing was waited for."""
    by_node = statements(office)
    facts = numbered(office, by_node)
    if _finished_by_word(office, facts):
        return _end(office, run_s, _all_finished(office, run_s))
    waited = too_late or _was_waited_for(office)
    following = next_step(rules, office.plan, facts, run_s, frozenset(), too_late=waited)
    match following:
        case str():
            gave_up = too_late and following.startswith(AWAITS)
            if not gave_up:
                return following
            told = last_incident(rules, office.plan, facts)
            return _end(office, run_s, _not_come_back(office, following, run_s), told)
        case IncarnationOver():
            return _alarm(office, following)
        case GoGiven():
            return _go(office, following, run_s)
        case PlanAdopted(plan=plan):
            plan = replace(plan, settings=rules.settings)
            look = "" if plan.kept else _look_first(office, facts, plan, run_s)
            return look or _plan(office, by_node, plan, run_s)
        case RunFinished():
            return _end(office, run_s, following, last_incident(rules, office.plan, facts))
        case _:
            assert_never(following)


def _was_waited_for(office: Office) -> bool:
    """Whether all look again because the run goes on with fewer nodes, and nobody was lost since."""
    header = office.header
    if header is None or header.phase is not PlanPhase.LOOK:
        return False
    return header.fewer and header.missing == _names_lost(office)


def _names_lost(office: Office) -> str:
    return name_of(office.lost) if office.lost else ""


def _finished_by_word(office: Office, facts: Mapping[NodeId, NodeFact]) -> bool:
    """Whether every member has finished, and of some only their direct word tells.

    An alarm says nothing against it: one whose lease was gone was counted as lost while others still ran.
    Nor does another look: who has left by then with 0 did so by words that were given before it.
    """
    header, roster = office.header, office.roster
    if header is None or roster is None or header.phase not in (PlanPhase.GO, PlanPhase.LOOK):
        return False
    life = header.incarnation
    left = [entry for entry in roster.entries if not _states_done(facts.get(entry.node), entry, life)]
    return bool(left) and all((entry.node, entry.boot) in office.finished for entry in left)


def _states_done(fact: NodeFact | None, entry: RosterEntry, incarnation: int) -> bool:
    here = fact is not None and (fact.boot, fact.incarnation) == (entry.boot, incarnation)
    return here and fact is not None and fact.status is NodeStatus.DONE


def _all_finished(office: Office, run_s: float) -> RunFinished:
    life = -1 if office.header is None else office.header.incarnation
    return RunFinished(at_s=run_s, incarnation=life, exit_code=0, why="every rank finished", stopped=False)


def statements(office: Office) -> dict[NodeId, Stated]:
    """One statement for each node: its member's while that lives, else of the supervisor that came last.

    Who stands there under a member's name under another boot waits for that one's end. Before the
    first plan of a run nobody counts who belonged to the one before.
    """
    found: dict[NodeId, Stated] = {}
    roster = office.roster if office.header is not None else None
    ended = 0 if office.header is not None else office.common.header_changed
    for one in sorted(office.nodes.stated, key=lambda one: one.created):
        member = roster is not None and roster.has(one.node, one.boot)
        before = found.get(one.node)
        taken = before is not None and roster is not None and roster.has(before.node, before.boot)
        if member or (one.created > ended and one.statement.asked == office.terms.asked and not taken):
            found[one.node] = one
    return found


def numbered(office: Office, by_node: Mapping[NodeId, Stated]) -> dict[NodeId, NodeFact]:
    """The facts, with arrivals counted (at the start, by node rank first), and who raised the alarm first.

    And with the node rank that each was started with.
    """

    def order(one: Stated) -> tuple[bool, int, int]:
        rank = one.statement.node_rank if office.header is None else None
        return rank is None, rank or 0, one.created

    plan = office.plan
    alarm = None if plan is None else office.common.alarm(plan.incarnation)
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


def name_of(value: Roster | Plan | tuple[RosterEntry, ...]) -> str:
    """A name for what is written once: another value gets another name."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _look_first(
    office: Office, facts: Mapping[NodeId, NodeFact], plan: Plan, run_s: float
) -> Transaction | str:
    """What a lost member saved last is seen by those who look after its end; empty once all have."""
    header = office.header
    if header is None:
        return ""
    missing = _names_lost(office)
    seated = [facts[seat.node] for seat in plan.topology.nodes]
    asked = header.phase is PlanPhase.LOOK and header.missing == missing
    if (missing or any(fact.look < 0 for fact in seated)) and not asked:
        fewer = office.roster is not None and len(plan.topology.nodes) < len(office.roster.entries)
        looking = replace(
            header, phase=PlanPhase.LOOK, look=header.look + 1, missing=missing, run_s=run_s, fewer=fewer
        )
        what = f"look again, for the {looking.look}. time"
        return _guarded(office, what, Put(key=PLAN_KEY, value=looking))
    behind = [fact.node for fact in seated if asked and fact.look < header.look]
    return f"{', '.join(behind)} looks through the checkpoints again" if behind else ""


def _plan(office: Office, by_node: Mapping[NodeId, Stated], plan: Plan, run_s: float) -> Transaction:
    """The next incarnation, to be prepared or begun; what belonged to the one before is removed."""
    roster = Roster(
        entries=tuple(
            RosterEntry(
                node=seat.node,
                slots=seat.slots,
                boot=by_node[seat.node].boot,
                peer_addr=by_node[seat.node].statement.peer_addr,
                machine=by_node[seat.node].statement.machine,
            )
            for seat in plan.topology.nodes
        )
    )
    body = replace(plan, topology=Topology(nodes=()), boots=())
    before = office.common.header
    seated = [by_node[seat.node].statement.fact for seat in plan.topology.nodes]
    start = at_once.meeting(plan, seated, office.header, run_s)
    header = PlanHeader(
        incarnation=plan.incarnation,
        phase=PlanPhase.PREPARE if start is None else PlanPhase.GO,
        roster=name_of(roster),
        body=name_of(body),
        run_s=run_s,
        look=0 if before is None else before.look,
        master_addr="" if start is None else start[0],
        master_port=0 if start is None else start[1],
    )
    writes: list[Operation] = [
        Put(key=f"{SMALL_BODIES if _is_small(body) else BODIES}{header.body}", value=body),
        Put(key=PLAN_KEY, value=header),
    ]
    if before is None or before.roster != header.roster:
        writes.insert(0, Put(key=f"{ROSTERS}{header.roster}", value=roster))
    writes += [Delete(key=key) for key in _outdated(office, header)]
    return _guarded(office, f"plan incarnation {plan.incarnation}", *writes)


def _is_small(body: Plan) -> bool:
    return len(repr(body)) <= SMALL_BODY


def _outdated(office: Office, header: PlanHeader) -> list[str]:
    """Parts that only the plan before named, and alarms that say of older incarnations that they are over."""
    before = office.common.header
    keys = [
        alarm_key(alarm.incarnation)
        for alarm in office.common.alarms
        if alarm.incarnation < header.incarnation
    ]
    if before is not None and before.body not in ("", header.body):
        keys += [f"{folder}{before.body}" for folder in (BODIES, SMALL_BODIES)]
    if before is not None and before.last:
        keys.append(f"{BODIES}{before.last}")
    if before is not None and before.roster not in ("", header.roster):
        keys.append(f"{ROSTERS}{before.roster}")
    return keys[: MOST_COMPARES // 2]


def _go(office: Office, go: GoGiven, run_s: float) -> Transaction | str:
    header = office.header
    if header is None or header.phase is not PlanPhase.PREPARE:
        return "everybody is told to start"
    if office.common.alarm(go.incarnation) is not None:
        return f"incarnation {go.incarnation} is over before it began"
    started = replace(
        header,
        phase=PlanPhase.GO,
        run_s=run_s,
        master_addr=go.master_addr,
        master_port=go.master_port,
    )
    return _guarded(office, f"start incarnation {go.incarnation}", Put(key=PLAN_KEY, value=started))


def _alarm(office: Office, over: IncarnationOver) -> Transaction | str:
    """Incarnation is over: everybody hears it once, whoever says it first."""
    incarnation, why = over.incarnation, over.why
    before = office.common.alarm(incarnation)
    if before is not None and (over.stays or not before.stays):
        return f"incarnation {incarnation} ends: {why}"
    alarm = Alarm(incarnation=incarnation, node=NodeId(""), why=why, stop=over.stop, stays=over.stays)
    key = alarm_key(incarnation)
    written = _guarded(office, f"end incarnation {incarnation}: {why}", Put(key=key, value=alarm))
    return written if before else replace(written, compares=(Absent(key=key), *written.compares))


def _end(office: Office, run_s: float, end: RunFinished, told: Aftermath | None = None) -> Transaction:
    """The end of the run, with what every node writes its last card from."""
    before, body = office.common.header, office.body
    known = None if told is None or body is None else _telling(body, told)
    header = PlanHeader(
        incarnation=end.incarnation,
        phase=PlanPhase.FINISHED,
        roster="" if before is None else before.roster,
        body="" if before is None else before.body,
        run_s=run_s,
        look=0 if before is None else before.look,
        exit_code=end.exit_code,
        why=end.why,
        stopped=bool(end.stopped),
        last=name_of(known) if known is not None else before.last if before is not None else "",
        stop=end.stop,
    )
    writes: list[Operation] = [Put(key=PLAN_KEY, value=header)]
    if known is not None:
        writes.insert(0, Put(key=f"{BODIES}{header.last}", value=known))
    return _guarded(office, f"end the run with {end.exit_code}", *writes)


def _telling(body: Plan, told: Aftermath) -> Plan:
    """A plan's body that tells of one incident more."""
    ledger = replace(body.ledger, incidents=max(body.ledger.incidents, told.incident.number))
    return replace(body, point=None, replaced=(), aftermath=told, ledger=ledger)


def _not_come_back(office: Office, waits: str, run_s: float) -> RunFinished:
    """What the run ends with when a node does not come: after one that had ended, that one's code."""
    before, wait_s = office.common.header, office.terms.times.node_wait_s
    code, why = 69, f"{waits.removeprefix(AWAITS)} did not come within {wait_s:g} s"
    if office.header is None and before is not None:
        code, why = before.exit_code, f"the run had ended: {before.why}; {why}"
    incarnation = -1 if before is None else before.incarnation
    return RunFinished(at_s=run_s, incarnation=incarnation, exit_code=code, why=why, stopped=False)


def _guarded(office: Office, what: str, *writes: Operation) -> Transaction:
    """Only as coordinator, over the plan as it was read, and while the lost are lost."""
    compares = (still_coordinator(office.common), plan_as_seen(office.common), *_still_lost(office))
    return Transaction(what=what, compares=compares, then=writes)


def _still_lost(office: Office) -> tuple[Compare, ...]:
    """A member that was held comes back under its own boot, and this node's view of that may be older."""
    if len(office.lost) > MOST_COMPARES:
        return (NothingNewer(folder=NODES, revision=office.nodes.revision),)
    return tuple(Absent(key=node_key(entry.node, entry.boot)) for entry in office.lost)
