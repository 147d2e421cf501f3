"""Which nodes have a seat in the next incarnation, where a run of several may go on with fewer. Pure.

A seat is a place among all nodes of the run (``--nnodes=MIN:MAX``); it keeps its number while it is vacant.
Who is expected is waited for first. Fewer or more only from a point that serves any number of workers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from faultrun.core.humanize import several
from faultrun.core.placement.place import NOBODY, can_sit, place, replaced, taken
from faultrun.core.placement.resize import Inseparable, groups_in, resized, slots_of, takes_from, who_leaves
from faultrun.core.placement.seat_numbers import as_listed, emptied, numbered, numbers, vacant_in
from faultrun.core.placement.slots import accuse, condemned
from faultrun.core.recovery.common_point import common_point
from faultrun.model.checkpoint import OnNode, RecoveryPoint
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.elastic import Elastic, Grow, NodeAside, SlotLedger, Vacant
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.topology import NodeId, Replacement, Topology

_DIFFERENT_PARTS = "its ranks hold different parts of the model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Who takes part, and what the plan knows of who does not.

    ``takes``: whose state each rank goes on with, by rank of the world before, where their number changes;
    None: as many as before, each with its own.
    """

    seats: Topology
    slots: SlotLedger | None = None
    replaced: tuple[Replacement, ...] = ()
    takes: tuple[int, ...] | None = None

    def of_use(self, fact: NodeFact) -> NodeFact:
        """What a node says, with those points only that this world can begin from."""
        return fact if self.takes is None else _for_any_number(fact)

    def moved(self, point: RecoveryPoint | None) -> RecoveryPoint | None:
        """``point`` with a file for each rank; where each node has its own disk, it has that already."""
        if self.takes is None or point is None or isinstance(point.source, OnNode):
            return point
        return resized(point, self.takes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSeating:
    """The run cannot begin with the nodes that are here; ``why`` is empty where they are just too few.

    ``hopeless``: enough are here for a smaller run, and that cannot go on.
    """

    why: str = ""
    hopeless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What seats are given by: the run as ``wanted``, the ``plan`` before, what the nodes ``here`` say.

    ``incident`` ended that plan, None where none has to be answered. ``wait_is_over``: for who is missing.
    ``stopped``: what was told to stop, and may be gone by now.
    """

    elastic: Elastic
    policy: RestartPolicy
    wanted: Topology
    plan: Plan | None
    here: Mapping[NodeId, NodeFact]
    incident: Incident | None
    wait_is_over: bool
    stopped: frozenset[NodeId] = frozenset()

    @property
    def ledger(self) -> SlotLedger:
        """What is known of the nodes after the incident."""
        if self.plan is None:
            return SlotLedger()
        known = self.plan.slots
        if self.incident is not None:
            known = accuse(self.plan, self.incident, self.policy)
        return replace(known or SlotLedger(), refused="", vacant=vacant_in(self.wanted, self.plan))

    @property
    def fits(self) -> bool:
        """Whether the plan before was made for the seats that are wanted now."""
        if self.plan is None:
            return False
        return len(self.plan.topology.nodes) + len(self.ledger.vacant) == len(self.wanted.nodes)

    @property
    def whole(self) -> Topology:
        """All seats, each by who has it or had it last."""
        if self.plan is None or not self.fits:
            return self.wanted
        if not (vacant := {one.seat: one.node for one in vacant_in(self.wanted, self.plan)}):
            return self.plan.topology
        sits = iter(self.plan.topology.nodes)
        names = {seat.node for seat in self.plan.topology.nodes}
        return Topology(
            nodes=tuple(
                replace(seat, node=NOBODY if vacant[number] in names else vacant[number])
                if number in vacant
                else next(sits)
                for number, seat in enumerate(self.wanted.nodes)
            )
        )

    @property
    def before(self) -> Topology:
        """All seats by who has them now."""
        vacant = () if self.plan is None else vacant_in(self.wanted, self.plan)
        return emptied(self.whole, {one.seat for one in vacant})

    @property
    def keeps_size(self) -> bool:
        """Whether all seats are needed, and a bad node only gives its own to a spare."""
        return self.elastic.keeps_size(len(self.wanted.nodes))

    @property
    def count(self) -> int:
        """How many nodes the run has now, or is to begin with."""
        return len(self.plan.topology.nodes if self.plan is not None and self.fits else self.wanted.nodes)


def seated(known: Known) -> Seating | NoSeating:
    """Who has which seat, or that the run waits and what speaks against going on with fewer.

    A node that fails again and again is set aside, if the others can do without it or a spare is there. It
    has a seat again at once where no other node could have it, unless a health check is to speak for it.
    """
    bad, refused = _bad_node(known), ""
    if bad is not None:
        given = _given(known, bad)
        if isinstance(given, Seating):
            return given
        refused = f"node {bad.node} keeps its place ({bad.why}): {given.why}"
    given = _given(known, None)
    if isinstance(given, NoSeating) and not known.elastic.health_check:
        given = _given(known, None, forgives=True)
    if refused and isinstance(given, Seating):
        return replace(given, slots=replace(given.slots or SlotLedger(), refused=refused))
    return given


def can_do_without_one(elastic: Elastic, plan: Plan, here: Mapping[NodeId, NodeFact]) -> bool:
    """Whether one more node, or slot of the only one, could be set aside now."""
    seats = {seat.node for seat in plan.topology.nodes}
    if not elastic.min_nodes or len(seats) > elastic.min_nodes:
        return True
    out = seats if plan.slots is None else {*seats, *set_aside(plan.slots, here)}
    return any(node not in out and can_sit(fact) for node, fact in here.items())


def left_out(plan: Plan, incident: Incident, following: Plan) -> bool:
    """Whether the node whose rank failed first takes no part any more."""
    if (rank := incident.rank) is None or rank >= plan.topology.world_size:
        return False
    node, _ = slots_of(plan.topology)[rank]
    return all(seat.node != node for seat in following.topology.nodes)


def _bad_node(known: Known) -> NodeAside | None:
    """The node that the incident shows to be unfit."""
    plan, incident = known.plan, known.incident
    if plan is None or incident is None or incident.rank is None:
        return None
    ledger = known.ledger
    if not (why := condemned(ledger, incident, "its ranks")) or ledger.accused is None:
        return None
    return NodeAside(node=ledger.accused.node, incarnation=plan.incarnation + 1, why=why)


def _given(known: Known, bad: NodeAside | None, *, forgives: bool = False) -> Seating | NoSeating:
    """The seats without ``bad``, or what speaks against it. ``forgives``: with those set aside."""
    before = set[NodeId]() if forgives else {*set_aside(known.ledger, known.here)}
    aside = before if bad is None else {*before, bad.node}
    able = {node: fact for node, fact in known.here.items() if node not in aside}
    least, grows = known.elastic.min_nodes, known.elastic.grow is Grow.AT_SAVE
    fewest = least if known.wait_is_over else max(least, known.count - (bad is not None))
    if (seats := _placed(known, able, fewest, grows=grows)) is None:
        return _too_few(known, able, bad)
    given = _fitted(known, seats, bad)
    if isinstance(given, Seating) or bad is not None:
        return given
    if not known.fits or (same := _placed(known, able, known.count, grows=False)) is None:
        return _hopeless(seats, given)
    as_many = _fitted(known, same, None)
    if isinstance(as_many, Seating) and known.incident is not None and known.incident.cause is Cause.GROWTH:
        told = replace(as_many.slots or SlotLedger(), stays_small=f"no more nodes: {given.why}")
        return replace(as_many, slots=told)
    return as_many


def _too_few(known: Known, able: Mapping[NodeId, NodeFact], bad: NodeAside | None) -> NoSeating:
    """Who is missing is said by others; here what would keep the rest from going on without them."""
    least = known.elastic.min_nodes
    if bad is not None and known.keeps_size:
        return NoSeating(why="no spare was there")
    if bad is not None:
        left = several(known.count - 1, "node")
        return NoSeating(why=f"{left} would be left, and --nnodes={least}:{len(known.wanted.nodes)}")
    seats = _placed(known, able, least, grows=known.elastic.grow is Grow.AT_SAVE)
    given = None if seats is None else _fitted(known, seats, None)
    if seats is not None and isinstance(given, NoSeating):
        return _hopeless(seats, given)
    aside = {*set_aside(known.ledger, known.here)}
    told = [f"node {one.node} is set aside: {one.why}" for one in known.ledger.nodes if one.node in aside]
    return NoSeating(why="; ".join(told))


def _hopeless(seats: Topology, given: NoSeating) -> NoSeating:
    nodes = several(len(taken(seats).nodes), "node")
    return NoSeating(why=f"{nodes} cannot go on: {given.why}", hopeless=True)


def _placed(known: Known, able: Mapping[NodeId, NodeFact], fewest: int, *, grows: bool) -> Topology | None:
    """All seats of the run, ``NOBODY`` in those left over; a vacant one is taken only where it ``grows``.

    Newcomers that found nothing whole get one only where too few are left without them.
    """
    if known.plan is None or not known.fits:
        return _seats_for(known, able, fewest, grows=grows)
    sits = {seat.node for seat in known.plan.topology.nodes}
    well = {node: fact for node, fact in able.items() if node in sits or not fact.resume.lacks}
    if len(well) < len(able) and _seats_for(known, well, known.elastic.min_nodes, grows=grows) is None:
        well = {**able}
    return _seats_for(known, well, fewest, grows=grows)


def _seats_for(known: Known, able: Mapping[NodeId, NodeFact], fewest: int, *, grows: bool) -> Topology | None:
    if known.elastic.fixed_seats:
        closed = set[int]() if grows else {one.seat for one in known.ledger.vacant}
        return as_listed(known.whole, [fact for fact in able.values() if can_sit(fact)], closed, fewest)
    if grows or known.plan is None or not known.fits:
        return place(known.wanted, known.whole, able, fewest)
    now = known.plan.topology
    if (seats := place(now, now, able, fewest)) is None:
        return None
    filled = iter(seats.nodes)
    return Topology(nodes=tuple(seat if seat.node == NOBODY else next(filled) for seat in known.before.nodes))


def _fitted(known: Known, seats: Topology, bad: NodeAside | None) -> Seating | NoSeating:
    """Say what each rank of ``seats`` goes on with, or why so many workers cannot go on."""
    after, plan = taken(seats), known.plan
    moved = replaced(known.before, seats) if known.fits else ()
    given = Seating(seats=after, slots=_told(known, seats, bad), replaced=moved)
    size = known.wanted.world_size if plan is None else plan.topology.world_size
    if after.world_size == size or known.keeps_size:
        return given
    facts = [known.here[seat.node] for seat in after.nodes]
    point = common_point(after, facts)
    if after.world_size < size:  # rather than to wait, it begins from an older one
        point = common_point(after, [_for_any_number(fact) for fact in facts]) or point
    if point is None:
        seen = next((one.fixed_by for fact in facts for one in fact.resume.points), None)
        return given if seen is None else NoSeating(why=seen or "they have no checkpoint in common")
    if point.fixed_by:
        return NoSeating(why=point.fixed_by)
    return _with_takes(known, seats, given, point)


def _with_takes(known: Known, seats: Topology, given: Seating, point: RecoveryPoint) -> Seating | NoSeating:
    """``given`` with whose state each rank has, where ``point`` serves any number of whole copies."""
    if known.plan is None or not known.fits:
        alike = len(groups_in(point, known.wanted.world_size)) == 1
        takes = tuple(range(given.seats.world_size))
        return replace(given, takes=takes) if alike else NoSeating(why=_DIFFERENT_PARTS)
    size = known.plan.topology.world_size
    groups = groups_in(point, size)
    if len(groups) > 1 and isinstance(point.source, OnNode):
        return NoSeating(why=f"{_DIFFERENT_PARTS}, on disks of their own")
    whole, before, after = numbers(known.wanted), numbered(known.before), numbered(seats)
    gone = {rank for rank, (seat, _) in enumerate(slots_of(before)) if seats.nodes[int(seat)].node == NOBODY}
    leaving = who_leaves(groups, gone) if gone else frozenset[int]()
    if isinstance(leaving, Inseparable):
        return NoSeating(why=leaving.why)
    if leaving != gone:
        return NoSeating(why="a copy of the model has ranks on other nodes, too")
    slots, mates = given.slots, [frozenset(group) for group in known.ledger.groups]
    if slots is not None and len(groups) > 1 and size == whole.world_size:
        slots = replace(slots, groups=tuple(tuple(sorted(group)) for group in groups))
    return replace(given, slots=slots, takes=tuple(takes_from(before, after, whole, mates)))


def _told(known: Known, seats: Topology, bad: NodeAside | None) -> SlotLedger | None:
    """What the next plan knows of its nodes; None where there is nothing."""
    ledger, names = known.ledger, {seat.node for seat in seats.nodes}
    if bad is not None:
        ledger = replace(ledger, accused=None)
    before = {one.seat: one for one in ledger.vacant}
    nodes = tuple(one for one in (*ledger.nodes, *(() if bad is None else (bad,))) if one.node not in names)
    ledger = replace(ledger, nodes=nodes)
    vacant = tuple(
        before.get(number)
        or Vacant(
            seat=number, node=had.node, incarnation=_next(known), why=_why_gone(known, ledger, had.node)
        )
        for number, (had, seat) in enumerate(zip(known.whole.nodes, seats.nodes, strict=True))
        if seat.node == NOBODY
    )
    ledger = replace(ledger, vacant=vacant, groups=ledger.groups if vacant else ())
    if len(vacant) < len(before):
        ledger = replace(ledger, stays_small="")
    return None if ledger == SlotLedger() else ledger


def _why_gone(known: Known, ledger: SlotLedger, node: NodeId) -> str:
    aside = next((one.why for one in ledger.nodes if one.node == node), "")
    fact = known.here.get(node)
    if aside or not node:
        return aside or "it has not come"
    if node in known.stopped or (fact is not None and fact.stop is not None):
        return "it was told to stop"
    return "it was lost" if fact is None else "it cannot start workers"


def _next(known: Known) -> int:
    if known.plan is not None:
        return known.plan.incarnation + 1
    return max((fact.incarnation for fact in known.here.values()), default=-1) + 1


def _for_any_number(fact: NodeFact) -> NodeFact:
    return fact.able_to_resume([point for point in fact.resume.points if not point.fixed_by])


def set_aside(ledger: SlotLedger, facts: Mapping[NodeId, NodeFact]) -> Iterator[NodeId]:
    """Nodes that are not known to be well again."""
    for one in ledger.nodes:
        if (fact := facts.get(one.node)) is None or not fact.slots.usable:
            yield one.node
