"""What the coordinator writes: the answer of ``next_plan.next_step`` as a transaction with its guards.

Pure. Every write compares the coordinator's own token, the plan as it was read, and that each member
that is counted as lost has not come back since.
"""

from collections.abc import Mapping
from dataclasses import replace

from faultrun.core.humanize import node_names, span
from faultrun.core.plan.joint_saves import joint_saves
from faultrun.core.plan.next_plan import Rules, last_incident, next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.core.recovery.common_point import begun_anew
from faultrun.errors import NoWholeCheckpoint, assert_never
from faultrun.model.events import GoGiven, PlanAdopted, RunFinished
from faultrun.model.incident import Aftermath
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.node_fact import NodeDone, NodeFact, NodeRunning
from faultrun.model.plan import Plan
from faultrun.model.topology import NodeId, Topology
from faultrun.nodes.protocol import skip_prepare
from faultrun.nodes.protocol.coordinator_input import (
    LONGEST_PATH,
    MOST_COMPARES,
    CoordinatorInput,
    guarded,
    name_of,
    namesakes,
    numbered,
    statements,
)
from faultrun.nodes.protocol.rescan_checkpoints import look_before, look_for_more, members, names_lost
from faultrun.nodes.values.membership import BODIES, PLAN_KEY, ROSTERS, SMALL_BODIES, Stated, alarm_key
from faultrun.nodes.values.roster import Alarm, PlanHeader, PlanPhase, Roster, RosterEntry
from faultrun.nodes.values.transaction import Absent, Delete, Operation, Put, Transaction

_ENDED, NOTES_A_SAVE = "the run had ended: ", "note that the run has saved"
SMALL_BODY = 4096
"""Characters of its ``repr``: more than its JSON has. A list of files or of many nodes is larger."""


def coordinated(
    rules: Rules, given: CoordinatorInput, run_s: float, *, wait_is_over: bool
) -> Transaction | Waiting:
    """The write that follows, or what has to come first. ``wait_is_over``: missing nodes were waited for."""
    by_node = statements(given)
    facts = numbered(given, by_node)
    if _finished_by_word(given, facts):
        return _end(given, run_s, _all_finished(given, run_s))
    waited = wait_is_over or _was_waited_for(given)
    life = -1 if given.header is None else given.header.incarnation
    alarm = given.common.alarm(life)
    stopped = frozenset[NodeId]() if alarm is None or alarm.stop is None else frozenset({alarm.node})
    following = next_step(rules, given.plan, facts, run_s, wait_is_over=waited, stopped=stopped)
    match following:
        case Waiting(missing=nodes, hopeless=hopeless) if nodes and (wait_is_over or (waited and hopeless)):
            look = look_for_more(given, facts, members(given), run_s, waited=True) if hopeless else None
            told = last_incident(rules, given.plan, facts)
            end = _not_come_back(given, _also_told(given, following), run_s)
            return look or _end(given, run_s, end, told)
        case Waiting():
            return _saves_noted(given, run_s) or _also_told(given, following)
        case IncarnationOver():
            return _alarm(given, following)
        case GoGiven():
            return _go(given, following, run_s)
        case PlanAdopted(plan=plan):
            plan = replace(plan, settings=rules.settings)
            look = None if plan.kept else look_before(given, facts, plan, run_s)
            return look or _from_nothing(given, facts, plan, run_s) or _plan(given, by_node, plan, run_s)
        case RunFinished(wanting=nodes) if nodes and (
            look := look_for_more(given, facts, nodes, run_s, waited=waited)
        ):
            return look
        case RunFinished():
            return _end(given, run_s, following, last_incident(rules, given.plan, facts))
        case _:
            assert_never(following)


def _also_told(given: CoordinatorInput, waiting: Waiting) -> Waiting:
    """``waiting`` with the supervisors that count as one node, where that may be why one is missing."""
    if not (names := namesakes(given)) or not waiting.missing:
        return waiting
    why = f"several supervisors are {node_names(names)}: give each host its own --node_name"
    return replace(waiting, reason=f"{waiting.reason} ({why})")


def _saves_noted(given: CoordinatorInput, run_s: float) -> Transaction | None:
    """That the run has saved, and what a save is made of: all who saw that may be gone when others come.

    Of very long names others are left out each time: it is written only while it grows.
    """
    header, body = given.header, given.body
    if header is None:
        return None
    noted, writes = replace(header, saved=header.saved or given.saved), list[Operation]()
    facts = (one.statement.fact for one in statements(given).values())
    if body is not None:
        seen = joint_saves(body.seen, (fact for fact in facts if isinstance(fact.status, NodeRunning)))
        if len(repr(seen)) > len(repr(body.seen)):
            known = replace(body, seen=seen)
            noted = replace(noted, body=name_of(known))
            writes = [_put_body(known), *(Delete(key=key) for key in _outdated(given, noted))]
    if noted == header:
        return None
    return guarded(given, NOTES_A_SAVE, Put(key=PLAN_KEY, value=replace(noted, run_s=run_s)), *writes)


def _was_waited_for(given: CoordinatorInput) -> bool:
    """Whether all look again because no node is waited for any more, and none was lost since."""
    if (header := given.header) is None or header.phase is not PlanPhase.LOOK:
        return False
    return header.fewer and header.missing == names_lost(given)


def _finished_by_word(given: CoordinatorInput, facts: Mapping[NodeId, NodeFact]) -> bool:
    """Whether every member has finished, and of some only their direct word tells.

    An alarm says nothing against it: one whose lease was gone was counted as lost while others still ran.
    Nor does another look: who has left by then with 0 did so by words that were given before it.
    """
    header, roster = given.header, given.roster
    if header is None or roster is None or header.phase not in (PlanPhase.GO, PlanPhase.LOOK):
        return False
    life = header.incarnation
    left = [entry for entry in roster.entries if not _states_done(facts.get(entry.node), entry, life)]
    return bool(left) and all((entry.node, entry.boot) in given.finished for entry in left)


def _states_done(fact: NodeFact | None, entry: RosterEntry, incarnation: int) -> bool:
    here = fact is not None and fact.boot == entry.boot
    return here and fact is not None and isinstance(fact.status_in(incarnation), NodeDone)


def _all_finished(given: CoordinatorInput, run_s: float) -> RunFinished:
    life = -1 if given.header is None else given.header.incarnation
    return RunFinished(at_s=run_s, incarnation=life, exit_code=0, why="every rank finished", stopped=False)


def _from_nothing(
    given: CoordinatorInput, facts: Mapping[NodeId, NodeFact], plan: Plan, run_s: float
) -> Transaction | None:
    """The end, where no node knows of a checkpoint although the run has one; all have looked by now."""
    if plan.point is not None or plan.kept or not given.saved:
        return None
    why = begun_anew(given.saved, [facts[seat.node] for seat in plan.topology.nodes])
    life, code = plan.incarnation - 1, NoWholeCheckpoint.exit_code
    end = RunFinished(at_s=run_s, incarnation=life, exit_code=code, why=why, stopped=False)
    return _end(given, run_s, end, plan.aftermath)


def _plan(given: CoordinatorInput, by_node: Mapping[NodeId, Stated], plan: Plan, run_s: float) -> Transaction:
    """The next incarnation, to be prepared or begun; what belonged to the one before is removed."""
    entries = []
    for seat in plan.topology.nodes:
        boot, said = by_node[seat.node].boot, by_node[seat.node].statement
        node, addr, machine = seat.node, said.peer_addr, said.machine
        entries.append(RosterEntry(node=node, slots=seat.slots, boot=boot, peer_addr=addr, machine=machine))
    roster = Roster(entries=tuple(entries))
    body = replace(plan, topology=Topology(nodes=()), boots=())
    before = given.common.header
    seated = [by_node[seat.node].statement.fact for seat in plan.topology.nodes]
    start = skip_prepare.meeting(plan, seated, given.header, run_s)
    header = PlanHeader(
        incarnation=plan.incarnation,
        phase=PlanPhase.PREPARE if start is None else PlanPhase.GO,
        roster=name_of(roster),
        body=name_of(body),
        run_s=run_s,
        look=0 if before is None else before.look,
        master_addr="" if start is None else start[0],
        master_port=0 if start is None else start[1],
        saved=given.saved if plan.point is None else plan.point.path[:LONGEST_PATH],
    )
    writes: list[Operation] = [_put_body(body), Put(key=PLAN_KEY, value=header)]
    if before is None or before.roster != header.roster:
        writes.insert(0, Put(key=f"{ROSTERS}{header.roster}", value=roster))
    writes += [Delete(key=key) for key in _outdated(given, header)]
    return guarded(given, f"plan incarnation {plan.incarnation}", *writes)


def _put_body(body: Plan) -> Put:
    small = len(repr(body)) <= SMALL_BODY
    return Put(key=f"{SMALL_BODIES if small else BODIES}{name_of(body)}", value=body)


def _outdated(given: CoordinatorInput, header: PlanHeader) -> list[str]:
    """Parts that only the plan before named, and alarms that say of older incarnations that they are over."""
    before = given.common.header
    keys = [alarm_key(one.incarnation) for one in given.common.alarms if one.incarnation < header.incarnation]
    if before is not None and before.body not in ("", header.body):
        keys += [f"{folder}{before.body}" for folder in (BODIES, SMALL_BODIES)]
    if before is not None and before.last:
        keys.append(f"{BODIES}{before.last}")
    if before is not None and before.roster not in ("", header.roster):
        keys.append(f"{ROSTERS}{before.roster}")
    return keys[: MOST_COMPARES // 2]


def _go(given: CoordinatorInput, go: GoGiven, run_s: float) -> Transaction | Waiting:
    if (header := given.header) is None or header.phase is not PlanPhase.PREPARE:
        return Waiting(reason="the start of all nodes")
    if given.common.alarm(go.incarnation) is not None:
        return Waiting(reason=f"the end of incarnation {go.incarnation}, which is over before it began")
    started = replace(header, phase=PlanPhase.GO, run_s=run_s, saved=given.saved)
    started = replace(started, master_addr=go.master_addr, master_port=go.master_port)
    return guarded(given, f"start incarnation {go.incarnation}", Put(key=PLAN_KEY, value=started))


def _alarm(given: CoordinatorInput, over: IncarnationOver) -> Transaction | Waiting:
    """Write the alarm of this incarnation, unless it is there: every node drains. Then wait."""
    incarnation, why = over.incarnation, over.why
    if (before := given.common.alarm(incarnation)) is not None and (over.stays or not before.stays):
        return Waiting(reason=f"the end of incarnation {incarnation}: {why}")
    alarm = Alarm(incarnation=incarnation, node=NodeId(""), why=why, stop=over.stop, stays=over.stays)
    key = alarm_key(incarnation)
    written = guarded(given, f"end incarnation {incarnation}: {why}", Put(key=key, value=alarm))
    return written if before else replace(written, compares=(Absent(key=key), *written.compares))


def _end(
    given: CoordinatorInput, run_s: float, end: RunFinished, told: Aftermath | None = None
) -> Transaction:
    """The end of the run, with what every node writes its last card from."""
    before, body = given.common.header, given.body
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
        saved=given.saved,
    )
    writes: list[Operation] = [Put(key=PLAN_KEY, value=header)]
    if known is not None:
        writes.insert(0, Put(key=f"{BODIES}{header.last}", value=known))
    return guarded(given, f"end the run with {end.exit_code}", *writes)


def _telling(body: Plan, told: Aftermath) -> Plan:
    """``body`` with the last incident, from which every node writes its card."""
    ledger = replace(body.ledger, incidents=max(body.ledger.incidents, told.incident.number))
    return replace(body, point=None, replaced=(), aftermath=told, ledger=ledger)


def _not_come_back(given: CoordinatorInput, waiting: Waiting, run_s: float) -> RunFinished:
    """What the run ends with when a node does not come: after one that had ended, that one's code."""
    before, wait_s = given.common.header, given.terms.times.node_wait_s
    code, why = 69, f"{waiting.reason} did not come within {span(wait_s)}"
    if given.header is None and before is not None:
        told = before.why.rpartition("; ")[0] if before.why.startswith(_ENDED) else _ENDED + before.why
        code, why = before.exit_code, f"{told}; {why}"
    incarnation = -1 if before is None else before.incarnation
    return RunFinished(at_s=run_s, incarnation=incarnation, exit_code=code, why=why, stopped=False)
