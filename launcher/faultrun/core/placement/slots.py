"""When a run that may shrink gives up a slot, and takes one back. Pure.

Called where the next incarnation is planned (``core/plan/next_plan.py``), after the incident is judged and
charged: a smaller world gets no restart that a whole one would not have got.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from faultrun.core.diagnosis.signatures import PROGRAM_ERRORS
from faultrun.core.humanize import rank_names, several
from faultrun.core.placement.resize import (
    Inseparable,
    Slot,
    groups_in,
    resized,
    seats_without,
    slots_of,
    takes_from,
    who_leaves,
)
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.exits import Signaled
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.elastic import Accused, Elastic, SetAside, SlotLedger
from faultrun.model.observed.evidence import FaultClass
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.topology import Topology

NAMED = "the platform has given up its device"
_IN_A_ROW = 2
_UNTIL_WELL = "; it gets no rank until its --health_check passes"
_OF_ITS_PLACE = frozenset({FaultClass.UNKNOWN, FaultClass.TRANSIENT, FaultClass.HARDWARE})
_SENT = frozenset({1, 2, 3, 9, 10, 12, 15})  # HUP INT QUIT KILL USR1 USR2 TERM: the others a program raises
_OF_A_RANK = frozenset({Cause.SIGNAL, Cause.EXIT, Cause.HANG, Cause.MEMORY, Cause.REJOIN})


def accuse(plan: Plan, incident: Incident, policy: RestartPolicy) -> SlotLedger | None:
    """What is known of the slots after ``incident`` ended ``plan``; None: nothing, and no device is accused.

    Two failures are in a row if they come within the window in which restarts are counted, training did not
    come further between them, and nothing else failed. Of several nodes the whole node is accused.
    """
    known = plan.slots
    rank = incident.rank
    if incident.ordered:
        return known
    ledger = known or SlotLedger()
    if rank is None or rank >= plan.topology.world_size or not _speaks_of_its_place(incident):
        return None if known is None else replace(ledger, accused=None)
    node, slot = slots_of(plan.topology)[rank]
    slot = slot if plan.of_one_node else 0
    last, failures = ledger.accused, 1
    if last is not None and (last.node, last.slot) == (node, slot):
        further = incident.step is not None and incident.step > plan.ledger.high_step
        in_a_row = incident.at_s - last.at_s < policy.window_s and not further
        failures = last.failures + 1 if in_a_row else 1
    return replace(ledger, accused=Accused(node=node, slot=slot, failures=failures, at_s=incident.at_s))


def condemned(ledger: SlotLedger | None, incident: Incident, who: str = "it") -> str:
    """Why the slot that ``incident`` accuses (``who``) shall get no worker; empty if it shall."""
    if incident.cause is Cause.UNHEALED:
        return incident.explanation
    if ledger is None or ledger.accused is None or ledger.accused.at_s != incident.at_s:
        return ""
    if incident.fault_class is FaultClass.HARDWARE:
        found = incident.finding
        return f"its device failed{f': {found.says}' if found is not None else ''}"
    failures = ledger.accused.failures
    return f"{who} failed {failures} times in a row while others worked" if failures >= _IN_A_ROW else ""


def elsewhere(incident: Incident) -> Incident:
    """``incident`` as it is judged where its slot is not used again: what broke there may go well."""
    hardware = incident.fault_class is FaultClass.HARDWARE
    return replace(incident, fault_class=FaultClass.TRANSIENT) if hardware else incident


def without_the_bad(
    elastic: Elastic | None,
    wanted: Topology,
    plan: Plan,
    following: Plan,
    facts: Sequence[NodeFact],
    incident: Incident | None = None,
) -> Plan:
    """``following`` without the slots whose devices the platform has given up, and that ``incident`` accuses.

    ``following.slots`` has been told of the incident; without one a device may have been given up meanwhile.
    Older points are those that the nodes' ``facts`` name.
    """
    if elastic is None or elastic.min_nodes:
        return following
    named = {(fact.node, slot) for fact in facts for slot in fact.slots.faulty}
    whys = {rank: NAMED for rank, slot in enumerate(slots_of(plan.topology)) if slot in named}
    if plan.slots is not None and (empty := plan.slots.empty):
        said = {(one.node, one.slot): one.why for one in empty}
        barred = plan.barred(usable_slots(facts))
        whys = {rank: said[slots_of(plan.topology)[rank]] for rank in barred} | whys
        following = replace(following, slots=replace(following.slots or plan.slots, empty=()))
    why = "" if incident is None else condemned(following.slots, incident)
    if incident is not None and incident.rank is not None and why:
        whys.setdefault(incident.rank, why)
    points = [point for fact in facts for point in fact.resume.points]
    return _shrunk(elastic, wanted, plan, whys, following, points)


def usable_slots(facts: Iterable[NodeFact]) -> set[Slot]:
    """Those that were set aside and are well again, as nodes say."""
    return {(fact.node, slot) for fact in facts for slot in fact.slots.usable}


def left_empty(following: Plan, rank: int, why: str) -> Plan:
    """``following``, in which the others train on without ``rank`` until its slot is well again."""
    node, slot = slots_of(following.topology)[rank]
    one = SetAside(node=node, slot=slot, incarnation=following.incarnation, why=why)
    known = following.slots or SlotLedger()
    return replace(following, slots=replace(known, empty=(*known.empty, one), accused=None))


def still_empty(following: Plan) -> Plan:
    """Forget of ``following``'s empty slots those that a newcomer takes."""
    if (ledger := following.slots) is None or not ledger.empty:
        return following
    slots = slots_of(following.topology)
    missing = {slots[rank] for rank in following.missing}
    empty = tuple(one for one in ledger.empty if (one.node, one.slot) in missing)
    return replace(following, slots=replace(ledger, empty=empty))


def grown(wanted: Topology, plan: Plan, facts: list[NodeFact], following: Plan) -> Plan:
    """``following`` with the slots that the nodes' ``facts`` say are well again, if it can have them."""
    ledger = following.slots
    usable = usable_slots(facts)
    if ledger is None or not usable:
        return following
    bad = tuple(one for one in ledger.bad if (one.node, one.slot) not in usable)
    aside = () if not bad else tuple(one for one in ledger.aside if one in bad or one.well)
    if (point := following.point) is not None and point.fixed_by:
        return replace(following, slots=replace(ledger, stays_small=f"no more workers: {point.fixed_by}"))
    seats = seats_without(wanted, aside)
    takes = takes_from(plan.topology, seats, wanted, [frozenset(group) for group in ledger.groups])
    told = replace(ledger, aside=aside, accused=None, refused="", groups=ledger.groups if aside else ())
    return replace(following, topology=seats, point=resized(point, takes), slots=told)


def workers_words(plan: Plan) -> str:
    """How many workers the run goes on with, and why not more or fewer; empty where that is no question."""
    ledger, size = plan.slots, plan.topology.world_size
    if ledger is None:
        return ""
    if ledger.vacant or ledger.nodes:
        return "; ".join(filter(None, (*_nodes_words(plan, ledger), ledger.refused, ledger.stays_small)))
    out = [f"slot {one.slot}: {one.why}" for one in (*ledger.aside, *ledger.empty)]
    whole, size = size + len(ledger.aside), size - len(ledger.empty)
    fewer = [f"{size} of {whole}, without {'; '.join(out)}"] if out else []
    return "; ".join(filter(None, (*fewer, ledger.refused, ledger.stays_small)))


def _nodes_words(plan: Plan, ledger: SlotLedger) -> Iterator[str]:
    """How many nodes go on, without which, and which of those that are set aside another has replaced."""
    left, gone = len(plan.topology.nodes), [one.node for one in ledger.vacant]
    aside = {one.node for one in ledger.nodes}
    if gone:
        names = (
            f"node {one.node}: {one.why}{_UNTIL_WELL if one.node in aside else ''}"
            if one.node
            else "one that has not come"
            for one in ledger.vacant
        )
        without = "; ".join(names)
        yield f"{left} of {several(left + len(gone), 'node')}, without {without}"
    for one in ledger.nodes:
        if one.node not in gone:
            yield f"node {one.node} is set aside: {one.why}{_UNTIL_WELL}"


def _shrunk(
    elastic: Elastic,
    wanted: Topology,
    plan: Plan,
    whys: Mapping[int, str],
    following: Plan,
    points: Sequence[RecoveryPoint],
) -> Plan:
    """``following`` without the slots of those ranks of ``plan`` that ``whys`` names, if the rest can go on.

    Where its point depends on the number of workers, the first of the older ``points`` that does not is
    taken. Where it cannot be, ``refused`` says why, and all goes on as it would have.
    """
    if not whys:
        return following
    before, whole, ledger = plan.topology, following, following.slots or SlotLedger()
    following = replace(following, point=_for_any_number(following.point, points))
    groups = groups_in(following.point, before.world_size)
    leaving = who_leaves(groups, frozenset(whys))
    against = _against(elastic, before, following, leaving)
    slots = slots_of(before)
    if against or isinstance(leaving, Inseparable):
        keep = _keep_words([slots[rank][1] for rank in sorted(whys)])
        return replace(whole, slots=replace(ledger, refused=f"{keep}: {against}"))
    lacking = f"its copy of the model lacks {rank_names(sorted(whys))}"
    out = tuple(
        SetAside(
            node=slots[rank][0],
            slot=slots[rank][1],
            incarnation=following.incarnation,
            why=whys.get(rank, lacking),
            well=rank not in whys,
            named=whys.get(rank, "") == NAMED,
        )
        for rank in sorted(leaving)
    )
    told = replace(ledger, aside=(*ledger.aside, *out), accused=None, refused="")
    if len(groups) > 1 and not ledger.aside:
        told = replace(told, groups=tuple(tuple(sorted(group)) for group in groups))
    seats = seats_without(wanted, told.aside)
    takes = [rank for rank in range(before.world_size) if rank not in leaving]
    return replace(following, topology=seats, point=resized(following.point, takes), slots=told)


def _against(
    elastic: Elastic, before: Topology, following: Plan, leaving: frozenset[int] | Inseparable
) -> str:
    """Why the run cannot go on without ``leaving``; empty if it can."""
    if isinstance(leaving, Inseparable):
        return leaving.why
    left = before.world_size - len(leaving)
    if left < elastic.min_workers:
        return f"{several(left, 'worker')} would be left, and --min_worker_num={elastic.min_workers}"
    return "" if following.point is None else following.point.fixed_by


def _for_any_number(point: RecoveryPoint | None, points: Sequence[RecoveryPoint]) -> RecoveryPoint | None:
    if point is None or not point.fixed_by:
        return point
    return next((older for older in points if not older.fixed_by), point)


def _keep_words(slots: Sequence[int]) -> str:
    numbers = " ".join(map(str, slots))
    return f"slot {numbers} keeps its worker" if len(slots) == 1 else f"slots {numbers} keep their workers"


def _speaks_of_its_place(incident: Incident) -> bool:
    """Whether it may be the device's, host's or network's doing, not the program's, memory's or a person's.

    Nothing that breaks sends SIGKILL: an operator does, another program, or the kernel for want of memory.
    """
    if incident.cause not in _OF_A_RANK:
        return False
    if incident.raised is not None and incident.raised.kind in PROGRAM_ERRORS:
        return False
    sent = isinstance(incident.status, Signaled) and incident.status.signum in _SENT
    killed = incident.cause is Cause.SIGNAL and sent and incident.finding is None
    return incident.fault_class in _OF_ITS_PLACE and not killed
