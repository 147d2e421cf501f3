"""How a run of several nodes stands, from the keys that they agree by, as one ``RunStatus``. Pure.

etcd holds what the nodes agreed on, and the newest card. Steps, logs and journals are in each node's folder.
"""

from collections.abc import Iterator
from dataclasses import replace

from faultrun.core.placement.slots import workers_words
from faultrun.core.plan.restart_budget import restarts_left
from faultrun.model.incident import Card
from faultrun.model.observed.node_fact import NodeRunning
from faultrun.model.plan import Ledger, Plan
from faultrun.model.spec.run_settings import RunSettings
from faultrun.model.topology import NodeId
from faultrun.nodes.values.membership import BODIES, ROSTERS, CommonKeys, KnownKeys, Stated
from faultrun.nodes.values.roster import PlanHeader, PlanPhase, Roster
from faultrun.observe.card.card import agreed_card, headline
from faultrun.observe.status.status import (
    ALIVE,
    LEFT,
    SPARE,
    AgreedState,
    IncarnationAlarm,
    LastIncident,
    NodeRow,
    RestartsSpent,
    RunEnd,
    RunStatus,
    Supervised,
)

_LOST, _WAITS, _ASIDE = "lost", "waits", "aside"
_ENDED, _DRAINING, _REPLACING = "ended", "draining", "replacing"
_PHASES = {
    PlanPhase.PREPARE: "preparing",
    PlanPhase.GO: "running",
    PlanPhase.LOOK: "looking",
    PlanPhase.FINISHED: _ENDED,
}


def nodes_status(run_id: str, etcd: tuple[str, ...], known: KnownKeys) -> RunStatus:
    """What ``known`` says, read at one moment with all of its parts."""
    common = known.common or CommonKeys(revision=0)
    header = common.header
    roster = known.parts.get(f"{ROSTERS}{header.roster}") if header is not None else None
    body = known.parts.get(f"{BODIES}{header.body}") if header is not None else None
    roster = roster if isinstance(roster, Roster) else Roster(entries=())
    plan = roster.completes(body) if isinstance(body, Plan) else None
    final = known.parts.get(f"{BODIES}{header.last}") if header is not None and header.last else None
    last = roster.completes(final) if isinstance(final, Plan) else plan
    point = plan.point if plan is not None else None
    settings = plan.settings if plan is not None else None
    card = _card(last, settings, header, roster)
    nodes, ended = tuple(_nodes(known, header, roster, _set_aside(plan))), _end(header)
    return RunStatus(
        run_id=run_id,
        log_dir="" if settings is None else settings.log_dir,
        supervisor=_supervised(nodes, ended),
        phase=_phase(common),
        incarnation=-1 if header is None else header.incarnation,
        world_size=roster.topology.world_size,
        spent=_spent(Ledger() if last is None else last.ledger, settings, header),
        last_incident=None if card is None else _told(card),
        resumed_from="" if point is None else point.path,
        resumed_step=None if point is None else point.global_step,
        ended=ended,
        workers="" if plan is None else workers_words(plan),
        nodes=nodes,
        agreed=_agreed(etcd, common, plan, card),
    )


def _agreed(etcd: tuple[str, ...], common: CommonKeys, plan: Plan | None, card: Card | None) -> AgreedState:
    header, leader = common.header, common.coordinator
    started = header is not None and header.phase is PlanPhase.GO
    after = None if plan is None else plan.aftermath
    return AgreedState(
        etcd=etcd,
        run_s=0.0 if header is None else header.run_s,
        coordinator="" if leader is None else leader.node,
        waits="" if leader is None else leader.waits,
        began="" if plan is None else plan.reason.value,
        began_after="" if after is None else after.incident.cause.value,
        kept=() if plan is None else tuple(sorted(plan.kept)),
        workers_at=f"{header.master_addr}:{header.master_port}" if header is not None and started else "",
        alarms=tuple(
            IncarnationAlarm(incarnation=a.incarnation, node=a.node, why=a.why) for a in common.alarms
        ),
        card=card,
    )


def _told(card: Card) -> LastIncident:
    number, ordered = card.incident.number, card.incident.ordered
    return LastIncident(number=number, headline=headline(card), age_s=None, ordered=ordered)


def _supervised(nodes: tuple[NodeRow, ...], ended: RunEnd | None) -> Supervised:
    if ended is not None:
        return Supervised.ENDED
    return Supervised.RUNNING if any(one.says for one in nodes) else Supervised.GONE


def _spent(ledger: Ledger, settings: RunSettings | None, header: PlanHeader | None) -> RestartsSpent:
    """By the run's clock when the plan was written: there is no other outside."""
    restarts = ledger.total_restarts
    counted = len(ledger.restarts)
    high_step = ledger.high_step if ledger.high_step >= 0 else None
    told = RestartsSpent(restarts=restarts, counted=counted, incidents=ledger.incidents, high_step=high_step)
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
    if (header := common.header) is None:
        return "gathering"
    alarm = common.alarm(header.incarnation) if header.phase in (PlanPhase.PREPARE, PlanPhase.GO) else None
    return _PHASES[header.phase] if alarm is None else _REPLACING if alarm.stays else _DRAINING


def _end(header: PlanHeader | None) -> RunEnd | None:
    if header is None or header.phase is not PlanPhase.FINISHED:
        return None
    return RunEnd(exit_code=header.exit_code, why=header.why, stopped=header.stopped)


def _set_aside(plan: Plan | None) -> frozenset[NodeId]:
    slots = None if plan is None else plan.slots
    return frozenset() if slots is None else frozenset(one.node for one in slots.nodes)


def _nodes(
    known: KnownKeys, header: PlanHeader | None, roster: Roster, aside: frozenset[NodeId]
) -> Iterator[NodeRow]:
    """Members in the order of their ranks, then all others in the order of arrival."""
    stated = sorted(known.nodes.stated if known.nodes is not None else (), key=lambda one: one.created)
    arrived = {(one.node, one.boot): at for at, one in enumerate(stated, 1)}
    here = {(one.node, one.boot): one for one in stated}
    gone = LEFT if header is None or header.phase is PlanPhase.FINISHED else _LOST
    for entry in roster.entries:
        member = here.pop((entry.node, entry.boot), None)
        every = roster.topology.ranks_of(entry.node)
        ranks = every[0], every[-1]
        if member is None:
            at = _host(entry.peer_addr)
            yield NodeRow(node=entry.node, boot=entry.boot, state=gone, address=at, ranks=ranks)
        else:
            yield _here(member, ALIVE, arrived[entry.node, entry.boot], ranks)
    beside = _WAITS if gone is LEFT else SPARE
    for who, one in here.items():
        unwell = who[0] in aside and not one.statement.fact.slots.usable
        yield _here(one, _ASIDE if unwell and gone is _LOST else beside, arrived[who], None)


def _here(one: Stated, state: str, arrived: int, ranks: tuple[int, int] | None) -> NodeRow:
    fact, said = one.statement.fact, one.statement
    return NodeRow(
        node=one.node,
        boot=one.boot,
        state=state,
        address=fact.addr or _host(said.peer_addr),
        says=fact.word.value,
        incarnation=fact.incarnation if fact.incarnation >= 0 else None,
        failure="" if fact.failure is None else fact.failure[1],
        lacks=fact.resume.lacks,
        hangs=fact.status.hangs if isinstance(fact.status, NodeRunning) else "",
        stopping=fact.stop is not None,
        node_rank=said.node_rank,
        ranks=ranks,
        arrived=arrived,
    )


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
