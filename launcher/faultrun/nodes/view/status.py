"""How a run of several nodes stands, from the keys that they agree by: values, and plain words. Pure.

etcd holds what the nodes agreed on, and the newest card. Steps, logs and journals are in each node's folder.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from faultrun.core.placement.slots import workers_words
from faultrun.core.plan.restart_budget import restarts_left
from faultrun.model.incident import Card
from faultrun.model.plan import Ledger, Plan
from faultrun.model.spec.run_settings import RunSettings
from faultrun.model.topology import NodeId, Topology
from faultrun.nodes.values.membership import BODIES, ROSTERS, CommonKeys, KnownKeys, Stated
from faultrun.nodes.values.roster import PlanHeader, PlanPhase, Roster, RosterEntry
from faultrun.observe.card.card import headline
from faultrun.observe.card.joint_card import agreed_card

_SCHEMA = 1
ALIVE, LEFT, SPARE = "alive", "left", "spare"
"""What is said of a node in ``NodeState.state``, among other words."""
_LOST, _WAITS, _ASIDE = "lost", "waits", "aside"
_ENDED, _DRAINING, _REPLACING = "ended", "draining", "replacing"
_PHASES = {
    PlanPhase.PREPARE: "preparing",
    PlanPhase.GO: "running",
    PlanPhase.LOOK: "looking",
    PlanPhase.FINISHED: _ENDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One supervisor of a node. ``state``: alive, lost, left (the run is over), spare, waits (no plan yet),
    aside (it gets no rank until it is well).

    ``says`` is its own newest statement, about ``incarnation``; ``failure`` why it cannot go on, ``lacks``
    why it can resume from nothing that it sees. ``ranks`` are the first and the last that the plan gives it.
    ``arrived`` counts those that are here, 0: it is not. ``hangs``: which of its ranks may hang, and
    where it is.
    """

    node: str
    boot: str
    state: str
    address: str
    says: str = ""
    incarnation: int | None = None
    failure: str = ""
    lacks: str = ""
    hangs: str = ""
    stopping: bool = False
    node_rank: int | None = None
    ranks: tuple[int, int] | None = None
    arrived: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesAlarm:
    """That an incarnation is over. ``node``: who said so, empty for the coordinator."""

    incarnation: int
    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesEnd:
    """How the run ended."""

    exit_code: int
    why: str
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartsTold:
    """What the plan says that was spent when it was made; ``counted``: since training last moved on.

    ``left`` of ``allowed`` in ``window_s`` are what would be allowed then; None: an older plan does not say.
    """

    restarts: int
    counted: int
    incidents: int
    high_step: int | None
    allowed: int | None = None
    left: int | None = None
    window_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesStatus:
    """The whole run. Without a plan ``incarnation`` is None and ``phase`` is ``gathering``.

    ``run_s`` is the run's clock when the plan was written last; ``waits`` what the coordinator waits for.
    ``card`` is of the newest incident, None where the plan tells of none. ``log_dir`` is that of the node
    which wrote the plan, with the folders of all nodes where they share it; empty where it does not say.
    ``left_out``: which nodes a run that may go on with fewer does without, and why. ``began_after`` is the
    cause of the incident that the plan answers, empty where it answers none.
    """

    run_id: str
    etcd: tuple[str, ...]
    phase: str
    incarnation: int | None
    world_size: int
    run_s: float
    coordinator: str
    waits: str
    began: str
    resumed_from: str
    resumed_step: int | None
    kept: tuple[int, ...]
    workers_at: str
    spent: RestartsTold
    alarms: tuple[NodesAlarm, ...]
    ended: NodesEnd | None
    nodes: tuple[NodeState, ...]
    card: Card | None = None
    log_dir: str = ""
    left_out: str = ""
    began_after: str = ""

    @property
    def members(self) -> tuple[NodeState, ...]:
        """Those that have ranks, in their order."""
        return tuple(one for one in self.nodes if one.ranks is not None)


def nodes_status(run_id: str, etcd: tuple[str, ...], known: KnownKeys) -> NodesStatus:
    """What ``known`` says, read at one moment with all of its parts."""
    common = known.common or CommonKeys(revision=0)
    header, leader = common.header, common.coordinator
    roster = known.parts.get(f"{ROSTERS}{header.roster}") if header is not None else None
    body = known.parts.get(f"{BODIES}{header.body}") if header is not None else None
    roster = roster if isinstance(roster, Roster) else Roster(entries=())
    plan = roster.completes(body) if isinstance(body, Plan) else None
    final = known.parts.get(f"{BODIES}{header.last}") if header is not None and header.last else None
    last = roster.completes(final) if isinstance(final, Plan) else plan
    point = plan.point if plan is not None else None
    settings = plan.settings if plan is not None else None
    started = header is not None and header.phase is PlanPhase.GO
    return NodesStatus(
        run_id=run_id,
        etcd=etcd,
        phase=_phase(common),
        incarnation=None if header is None or header.incarnation < 0 else header.incarnation,
        world_size=roster.topology.world_size,
        run_s=0.0 if header is None else header.run_s,
        coordinator="" if leader is None else leader.node,
        waits="" if leader is None else leader.waits,
        began="" if plan is None else plan.reason.value,
        resumed_from="" if point is None else point.path,
        resumed_step=None if point is None else point.global_step,
        kept=() if plan is None else tuple(sorted(plan.kept)),
        workers_at=f"{header.master_addr}:{header.master_port}" if header is not None and started else "",
        spent=_spent(Ledger() if last is None else last.ledger, settings, header),
        alarms=tuple(NodesAlarm(incarnation=a.incarnation, node=a.node, why=a.why) for a in common.alarms),
        ended=_end(header),
        nodes=tuple(_nodes(known, header, roster, _set_aside(plan))),
        card=_card(last, settings, header, roster),
        log_dir="" if settings is None else settings.log_dir,
        left_out="" if plan is None else workers_words(plan),
        began_after="" if plan is None or plan.aftermath is None else plan.aftermath.incident.cause.value,
    )


def document(status: NodesStatus) -> dict[str, Any]:
    """What ``status --json`` prints; ``docs/several-nodes.md`` describes it."""
    data = asdict(replace(status, card=None))
    del data["card"]
    card = status.card
    told = None if card is None else {"number": card.incident.number, "headline": headline(card)}
    return {"schema": _SCHEMA, **data, "restarts_left": status.spent.left, "last_incident": told}


def _spent(ledger: Ledger, settings: RunSettings | None, header: PlanHeader | None) -> RestartsTold:
    """By the run's clock when the plan was written: nobody outside has another."""
    told = RestartsTold(
        restarts=ledger.total_restarts,
        counted=len(ledger.restarts),
        incidents=ledger.incidents,
        high_step=ledger.high_step if ledger.high_step >= 0 else None,
    )
    if settings is None or header is None:
        return told
    policy = settings.policy
    left = restarts_left(ledger, policy, now_s=header.run_s, high_step=ledger.high_step)
    return replace(told, allowed=policy.max_restarts, left=left, window_s=policy.window_s)


def _card(
    plan: Plan | None, settings: RunSettings | None, header: PlanHeader | None, roster: Roster
) -> Card | None:
    """The newest incident's, as its nodes write it."""
    if plan is None or plan.aftermath is None or settings is None or header is None:
        return None
    gave_up = header.why if header.last else ""
    return agreed_card(plan, plan.aftermath, settings, roster.topology.world_size, gave_up)


def _phase(common: CommonKeys) -> str:
    header = common.header
    if header is None:
        return "gathering"
    alarm = common.alarm(header.incarnation) if header.phase in (PlanPhase.PREPARE, PlanPhase.GO) else None
    return _PHASES[header.phase] if alarm is None else _REPLACING if alarm.stays else _DRAINING


def _end(header: PlanHeader | None) -> NodesEnd | None:
    if header is None or header.phase is not PlanPhase.FINISHED:
        return None
    return NodesEnd(exit_code=header.exit_code, why=header.why, stopped=header.stopped)


def _set_aside(plan: Plan | None) -> frozenset[NodeId]:
    return (
        frozenset() if plan is None or plan.slots is None else frozenset(one.node for one in plan.slots.nodes)
    )


def _nodes(
    known: KnownKeys, header: PlanHeader | None, roster: Roster, aside: frozenset[NodeId]
) -> Iterator[NodeState]:
    """Members in the order of their ranks, then everybody else in the order of arrival."""
    stated = sorted(known.nodes.stated if known.nodes is not None else (), key=lambda one: one.created)
    arrived = {(one.node, one.boot): at for at, one in enumerate(stated, 1)}
    here = {(one.node, one.boot): one for one in stated}
    gone = LEFT if header is None or header.phase is PlanPhase.FINISHED else _LOST
    for entry in roster.entries:
        member = here.pop((entry.node, entry.boot), None)
        ranks = _ranks(roster.topology, entry)
        if member is None:
            at = _host(entry.peer_addr)
            yield NodeState(node=entry.node, boot=entry.boot, state=gone, address=at, ranks=ranks)
        else:
            yield _here(member, ALIVE, arrived[entry.node, entry.boot], ranks)
    beside = _WAITS if gone is LEFT else SPARE
    for who, one in here.items():
        unwell = who[0] in aside and not one.statement.fact.usable
        yield _here(one, _ASIDE if unwell and gone is _LOST else beside, arrived[who], None)


def _here(one: Stated, state: str, arrived: int, ranks: tuple[int, int] | None) -> NodeState:
    fact, said = one.statement.fact, one.statement
    return NodeState(
        node=one.node,
        boot=one.boot,
        state=state,
        address=fact.addr or _host(said.peer_addr),
        says=fact.status.value,
        incarnation=fact.incarnation if fact.incarnation >= 0 else None,
        failure="" if fact.failure is None else fact.failure[1],
        lacks=fact.lacks,
        hangs=fact.hangs,
        stopping=fact.stop is not None,
        node_rank=said.node_rank,
        ranks=ranks,
        arrived=arrived,
    )


def _ranks(topology: Topology, entry: RosterEntry) -> tuple[int, int]:
    ranks = topology.ranks_of(entry.node)
    return ranks[0], ranks[-1]


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
