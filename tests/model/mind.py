"""The product's own ``judge`` (and so ``next_step``) as the minds of the nodes in the model.

Equal knowledge is judged once. Its acts come back in the model's terms.
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from faultrun.errors import NoWholeCheckpoint
from faultrun.model.events import GoGiven, NodesEvent, PlanAdopted, RunFinished
from faultrun.model.observed.agreement import IncarnationOver, LookAgain
from faultrun.model.observed.elastic import NodesWaiting
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.topology import BootId, NodeId
from faultrun.nodes.protocol import lease_deadline
from faultrun.nodes.protocol.judge import judge
from faultrun.nodes.values.membership import (
    ALARMS,
    COORDINATOR_KEY,
    NODES,
    PLAN_KEY,
    Act,
    AskPeers,
    Commit,
    Fence,
    GrantLease,
    MemberClock,
    OwnState,
    PeerQuestion,
    Remembered,
    Tell,
    WarnPeers,
)
from faultrun.nodes.values.roster import Alarm, Leadership, PlanHeader, PlanPhase, Roster, Statement
from faultrun.nodes.values.transaction import Absent, Compare, CreatedAt, Delete, Operation, Put, Unchanged
from model.cluster import STAYS, Key, Word
from model.values import (
    NOW_S,
    PLAN_CHANGED,
    TIMES,
    View,
    Written,
    alarm,
    fact,
    index,
    is_busy,
    known,
    lease,
    node_id,
    plan_number,
    plan_of,
    rules,
    terms,
)


class Move(NamedTuple):
    """One act in the model's terms."""

    kind: str  # plan go over stay look end fence grant write warn
    number: int = 0
    words: str = ""
    compares: tuple[tuple[object, ...], ...] = ()
    then: tuple[tuple[object, ...], ...] = ()
    members: tuple[int, ...] = ()


class Verdict(NamedTuple):
    moves: tuple[Move, ...]
    overdue: bool
    waits: str


@cache
def answers(node: int, boot: int, word: Word, number: int, age: int, heard: int, dropped: bool) -> bool:
    """Whether a peer says "deaf, too", to whoever asks about the incarnation that it is in."""
    held = lease(number, dropped, age, heard, 0)
    return lease_deadline.answer(_question(word), fact(node, boot, word), None, held, TIMES, NOW_S).deaf


@cache
def says_done(node: int, boot: int, word: Word, plan: int) -> bool:
    """Whether a peer that has read this plan says that its ranks have come to their end."""
    header = plan_of(plan).header if plan else None
    said = lease_deadline.answer(_question(word), fact(node, boot, word), header, None, TIMES, NOW_S)
    return said.status is NodeStatus.DONE


def _question(word: Word) -> PeerQuestion:
    return PeerQuestion(node=NodeId("?"), boot=BootId(""), incarnation=word.incarnation)


@cache
def verdict(
    away: frozenset[str], members: int, least: int, view: View, *, stays: bool = False, late: bool = False
) -> Verdict:
    """What the product's code does with this knowledge; ``away`` are guards that it lacks for once.

    ``late``: whoever is missing was waited for, and ``least`` nodes are enough.
    """
    if "drained" in away and view.keys is not None:
        view = view._replace(keys=tuple(_ended(key, "joined") for key in view.keys))
    if "all_done" in away and view.keys and any(key.word.status == "done" for key in view.keys):
        view = view._replace(keys=tuple(_ended(key, "done") for key in view.keys))
    if "unfreed" in away and view.keys is not None and view.plan:
        view = view._replace(keys=tuple(_free(view.plan, key) for key in view.keys))
    if "one_boot" in away and view.keys is not None:
        newest = {key.node: key for key in sorted(view.keys)}
        view = view._replace(keys=tuple(newest.values()))
    if "believed" in away and view.plan and plan_of(view.plan).header.phase is PlanPhase.LOOK:
        view = view._replace(finished=())
    own = OwnState(
        fact=fact(view.node, view.boot, view.word),
        lease=lease(view.lease, view.dropped, view.age, view.heard, view.granted),
        raised=alarm(view.raised, view.node) if view.raised >= 0 else None,
    )
    clock = MemberClock(now_s=NOW_S, run_s=NOW_S)
    here = terms(view.node, fences="fence" not in away)
    remembered = Remembered(
        waiting_since_s=NOW_S - 2 * TIMES.node_wait_s if late else None,
        newcomers=(view.word.incarnation, tuple(map(node_id, view.waiting))),
    )
    judgement = judge(rules(members, least, stays=stays), here, own, known(view), remembered, clock)
    moves = tuple(move for act in judgement.acts for move in _moves(view, act))
    if "own_first" in away and view.own is None:
        sooner = verdict(away, members, least, view._replace(own=(view.word, view.lease)), stays=stays)
        moves = (
            *moves,
            *(move for move in sooner.moves if move.kind in ("plan", "go", "over", "look", "end")),
        )
    if "begun_anew" in away:
        moves = tuple(_anew(away, members, least, view, move) for move in moves)
    if "look" in away:
        moves = tuple(_without_a_look(away, members, least, view, move) for move in moves)
    waits = "" if judgement.waits is None else judgement.waits.reason
    return Verdict(moves, judgement.alive_until_s <= NOW_S, waits)


def _ended(key: Key, status: str) -> Key:
    """As if its ranks had come to their end ("done"), or its workers were gone ("joined")."""
    return key._replace(word=key.word._replace(status=status)) if is_busy(key.word) else key


def _free(plan: int, key: Key) -> Key:
    """As if its ranks had left their group."""
    seats = [index(entry.node) for entry in plan_of(plan).roster.entries]
    if key.word.status != "running" or key.node not in seats:
        return key
    return key._replace(word=key.word._replace(status="replacing", kept=seats.index(key.node)))


def _without_a_look(away: frozenset[str], members: int, least: int, view: View, move: Move) -> Move:
    """The plan that would follow at once if everybody had looked."""
    plans = [plan for what, *which in move.then for plan in which if what == "plan"]
    if not plans or view.keys is None or plan_of(int(str(plans[0]))).header.phase is not PlanPhase.LOOK:
        return move
    number = int(str(plans[0]))
    look = plan_of(number).header.look
    looked = tuple(key._replace(word=key.word._replace(look=look)) for key in view.keys)
    later = verdict(away, members, least, view._replace(plan=number, keys=looked))
    following = next(one for one in later.moves if one.kind == "write" and "plan" in one.then[0])
    compares = tuple(("plan", view.plan) if one == ("plan", number) else one for one in following.compares)
    return following._replace(compares=compares)


def _anew(away: frozenset[str], members: int, least: int, view: View, move: Move) -> Move:
    """The plan that would follow if nobody had noted or stated that the run has saved."""
    ends = [plan_of(int(str(plan[0]))) for what, *plan in move.then if what == "plan"]
    if not ends or ends[0].header.exit_code != NoWholeCheckpoint.exit_code or view.keys is None:
        return move
    header, roster, body = plan_of(view.plan)
    number = plan_number(Written(replace(header, saved=""), roster, body))
    keys = tuple(key._replace(word=key.word._replace(saved=False)) for key in view.keys)
    later = verdict(away, members, least, view._replace(plan=number, keys=keys))
    following = next(one for one in later.moves if one.kind == "write" and one.then[0][0] == "plan")
    planned = plan_of(int(str(following.then[0][1])))
    noted = plan_number(planned._replace(header=replace(planned.header, saved=header.saved)))
    compares = tuple(("plan", view.plan) if one == ("plan", number) else one for one in following.compares)
    return following._replace(compares=compares, then=(("plan", noted), *following.then[1:]))


def _moves(view: View, act: Act) -> tuple[Move, ...]:
    match act:
        case Tell(event=event):
            return _told(event)
        case Fence(why=why):
            return (Move("fence", words=why),)
        case GrantLease():
            return (Move("grant"),)
        case AskPeers(members=members):
            return (Move("ask", members=tuple(index(one.node) for one in members)),)
        case WarnPeers(alarm=alarm, members=members):
            return (Move("warn", alarm.incarnation, members=tuple(index(one.node) for one in members)),)
        case Commit(transaction=txn) if not txn.what.startswith("wait for"):
            compares = tuple(_compare(one) for one in txn.compares)
            return (Move("write", 0, txn.what, compares, _operations(view, txn.then)),)
        case _:
            return ()


def _told(event: NodesEvent) -> tuple[Move, ...]:
    match event:
        case PlanAdopted(incarnation=life):
            return (Move("plan", life),)
        case GoGiven(incarnation=life):
            return (Move("go", life),)
        case IncarnationOver(incarnation=life, stays=stays):
            return (Move("stay" if stays else "over", life),)
        case LookAgain(number=number):
            return (Move("look", number),)
        case RunFinished(exit_code=code):
            return (Move("end", code),)
        case NodesWaiting(nodes=nodes):
            return (Move("waiting", members=tuple(map(index, nodes))),)
        case _:
            return ()


def _compare(compare: Compare) -> tuple[object, ...]:
    match compare:
        case Absent(key=key) if key.startswith(NODES):
            return ("gone", *_whose(key))
        case Absent(key=key) if key.startswith(ALARMS):
            return ("silent", int(key.removeprefix(ALARMS)))
        case Absent(key=key) if key == COORDINATOR_KEY:
            return ("unled",)
        case Absent():
            return ("plan", 0)
        case Unchanged(key=key, changed=changed) if key == PLAN_KEY:
            return ("plan", changed - PLAN_CHANGED)
        case Unchanged(key=key, changed=changed):
            return ("word", *_whose(key), changed)
        case CreatedAt(created=token):
            return ("token", token)
        case _:
            raise AssertionError(compare)


def _whose(key: str) -> tuple[int, int]:
    node, boot = key.removeprefix(NODES).split("/")
    return index(NodeId(node)), int(boot)


def _operations(view: View, operations: tuple[Operation, ...]) -> tuple[tuple[object, ...], ...]:
    found: list[tuple[object, ...]] = []
    before = plan_of(view.plan) if view.plan else None
    roster, body = (before.roster, before.body) if before else (None, None)
    for operation in operations:
        match operation:
            case Put(value=Roster() as roster):
                pass
            case Put(value=Plan() as body):
                pass
            case Put(value=PlanHeader() as header):
                assert roster is not None
                assert body is not None
                found.append(("plan", plan_number(Written(header, roster, body))))
            case Put(value=Leadership()):
                found.append(("lead", view.node, view.boot, view.lease))
            case Put(value=Statement()):
                found.append(("word", Key(view.node, view.boot, view.word, view.lease)))
            case Put(value=Alarm() as alarm):
                found.append(("alarm", alarm.incarnation, STAYS if alarm.stays else index(alarm.node)))
            case Delete(key=key) if key == COORDINATOR_KEY:
                found.append(("resign",))
            case Delete(key=key) if key.startswith(NODES):
                found.append(("forget", *_whose(key)))
            case Delete(key=key) if key.startswith(ALARMS):
                found.append(("quiet", int(key.removeprefix(ALARMS))))
            case _:
                pass
    return tuple(found)
