"""Between the model's small numbers and the values that ``judge`` takes.

Now is always the same moment; ages are what differs. So equal knowledge gives equal values.
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from faultrun.core.plan.next_plan import Rules
from faultrun.model.checkpoint import Kind, RecoveryPoint, Shared
from faultrun.model.exits import Exited
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.elastic import Elastic
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.plan import Ledger, Plan, Reason
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from faultrun.nodes.values.lease import Lease, LeaseTimes
from faultrun.nodes.values.membership import (
    BODIES,
    ROSTERS,
    CommonKeys,
    KnownKeys,
    NodeKeys,
    NodeSettings,
    PeerAnswer,
    PeerWord,
    Stated,
)
from faultrun.nodes.values.roster import (
    Alarm,
    Leadership,
    PlanHeader,
    PlanPhase,
    Roster,
    RosterEntry,
    Statement,
)
from model.cluster import DEAF, FENCE, HOLD, STAYS, TTL, Answer, Key, Word
from support.nodes.node_facts import as_far_as_said

NOW_S = 100.0
TIMES = LeaseTimes(
    ttl_s=TTL, fence_s=FENCE, deaf_s=DEAF, hold_s=HOLD, election_s=0.0, node_wait_s=1e9, leave_s=0.0
)
POLICY = RestartPolicy(max_restarts=9, window_s=3600, backoff_min_s=0, backoff_max_s=0)
NAMES = "abcdefgh"
PLAN_CHANGED = 1_000_000


class Written(NamedTuple):
    """``all/plan`` with its parts, as the store keeps them."""

    header: PlanHeader
    roster: Roster
    body: Plan


class View(NamedTuple):
    """Everything that one judgement rests on, in the model's terms."""

    node: int
    boot: int
    lease: int
    dropped: bool
    age: int
    heard: int
    granted: int
    own: tuple[Word, int] | None
    word: Word
    raised: int
    warned: int
    plan: int
    alarms: tuple[tuple[int, int], ...]
    office: tuple[int, int, int] | None
    keys: tuple[Key, ...] | None
    answers: tuple[Answer, ...]
    finished: tuple[Answer, ...]
    waiting: tuple[int, ...]


_plans: list[Written | None] = [None]
_known_plans: dict[Written, int] = {}
_words: dict[Word, int] = {}


def plan_number(written: Written) -> int:
    if written not in _known_plans:
        _known_plans[written] = len(_plans)
        _plans.append(written)
    return _known_plans[written]


def plan_of(number: int) -> Written:
    written = _plans[number]
    assert written is not None
    return written


def word_number(word: Word) -> int:
    return _words.setdefault(word, len(_words) + 1)


def node_id(node: int) -> NodeId:
    return NodeId(NAMES[node])


def boot_id(boot: int) -> BootId:
    return BootId(str(boot))


def index(node: NodeId) -> int:
    return NAMES.index(node) if node else -1


def is_busy(word: Word) -> bool:
    return NodeStatus(word.status).busy


@cache
def rules(members: int, least: int = 0, *, stays: bool = False) -> Rules:
    seats = Topology(nodes=(NodeSlots(node=NodeId(""), slots=1),) * members)
    elastic = Elastic(min_workers=least, min_nodes=least) if least else None
    return Rules(topology=seats, policy=POLICY, elastic=elastic, stays=stays)


@cache
def first_plan(members: int) -> int:
    """Incarnation 0, which trains."""
    entries = tuple(
        RosterEntry(
            node=node_id(at), slots=1, boot=boot_id(0), peer_addr=NAMES[at], machine=NAMES[at].upper()
        )
        for at in range(members)
    )
    body = Plan(
        incarnation=0,
        topology=Topology(nodes=()),
        reason=Reason.FIRST,
        point=point(0),
        start_at_s=NOW_S,
        ledger=Ledger(),
    )
    header = PlanHeader(incarnation=0, phase=PlanPhase.GO, roster="first", body="first", run_s=NOW_S)
    return plan_number(Written(header, Roster(entries=entries), body))


@cache
def point(step: int) -> RecoveryPoint | None:
    return (
        None
        if not step
        else RecoveryPoint(
            path=f"{step}",
            kind=Kind.PERIODIC,
            global_step=step,
            epoch=None,
            step_in_epoch=None,
            files=(),
            source=Shared(),
        )
    )


@cache
def fact(node: int, boot: int, word: Word) -> NodeFact:
    incident = Incident(
        number=word.incarnation + 1,
        incarnation=word.incarnation,
        at_s=NOW_S,
        cause=Cause.EXIT,
        rank=0,
        status=Exited(code=1),
        step=word.incarnation,
    )
    return as_far_as_said(
        node=node_id(node),
        boot=boot_id(boot),
        at_s=NOW_S,
        incarnation=word.incarnation,
        status=NodeStatus(word.status),
        look=word.look,
        point=point(word.point),
        high_step=word.point,
        incident=_elsewhere(incident) if word.kept >= 0 else incident if word.struck else None,
        kept=frozenset({word.kept} if word.kept >= 0 else ()),
        meeting_port=1 if word.kept >= 0 else 0,
        addr=NAMES[node],
        master_port=1,
        open_port=int(word.open),
        saved="saved" if word.saved else "",
        lacks="half a save" if word.lacks else "",
        stop=StopSource.SIGTERM if word.stop else None,
    )


def _elsewhere(incident: Incident) -> Incident:
    return replace(incident, cause=Cause.ELSEWHERE, rank=None, status=None)


@cache
def terms(node: int, *, fences: bool = True) -> NodeSettings:
    times = TIMES if fences else replace(TIMES, fence_s=TTL + 1)
    return NodeSettings(node=node_id(node), peer_addr=NAMES[node], times=times, machine=NAMES[node].upper())


@cache
def statement(node: int, boot: int, word: Word) -> Statement:
    return Statement(fact=fact(node, boot, word), peer_addr=NAMES[node], machine=NAMES[node].upper())


@cache
def stated(key: Key) -> Stated:
    return Stated(
        statement=statement(key.node, key.boot, key.word),
        created=10 * key.boot + key.node + 1,
        changed=word_number(key.word),
        lease=key.lease,
    )


def lease(number: int, dropped: bool, age: int, heard: int, granted: int) -> Lease | None:
    if not number:
        return None
    return Lease(
        number=number,
        sent_at_s=NOW_S - age,
        granted_at_s=NOW_S - granted,
        heard_at_s=NOW_S - heard,
        dropped=dropped,
    )


def known(view: View) -> KnownKeys:
    common = CommonKeys(revision=1)
    parts: dict[str, Roster | Plan] = {}
    if view.plan:
        header, roster, body = plan_of(view.plan)
        common = replace(common, header=header, header_changed=PLAN_CHANGED + view.plan)
        parts = {f"{ROSTERS}{header.roster}": roster, f"{BODIES}{header.body}": body}
        parts |= {f"{BODIES}{header.last}": body} if header.last else {}
    if view.office is not None:
        node, boot, token = view.office
        leader = Leadership(node=node_id(node), boot=boot_id(boot))
        common = replace(common, coordinator=leader, token=token, coordinator_changed=token)
    alarms = tuple(alarm(life, who) for life, who in view.alarms)
    keys = None if view.keys is None else tuple(stated(key) for key in view.keys)
    own = None if view.own is None else stated(Key(view.node, view.boot, *view.own))
    given = tuple(
        PeerAnswer(
            node=node_id(one.node),
            boot=boot_id(one.boot),
            incarnation=one.incarnation,
            deaf=True,
            asked_at_s=NOW_S - one.age,
        )
        for one in view.answers
    )
    return KnownKeys(
        common=replace(common, alarms=alarms),
        own=own,
        nodes=None if keys is None else NodeKeys(revision=1, stated=keys),
        parts=parts,
        answers=given,
        words=tuple(
            PeerWord(
                node=node_id(one.node),
                boot=boot_id(one.boot),
                incarnation=one.incarnation,
                status=NodeStatus.DONE,
                heard_at_s=NOW_S,
            )
            for one in view.finished
        ),
        warnings=() if view.warned < 0 else (alarm(view.warned, -1),),
    )


@cache
def alarm(life: int, who: int) -> Alarm:
    node = node_id(who) if who >= 0 else NodeId("")
    return Alarm(incarnation=life, node=node, why="over", stays=who == STAYS)
