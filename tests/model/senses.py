"""What a node knows when it judges: what it has read, and what its peers answer if it asks them now."""

from collections.abc import Iterator

from model import mind, values
from model.cluster import DEAF, FENCE, NO_PROMISE, NOBODY, UP, Answer, Node, Setting, State, talks
from model.mind import Verdict
from model.values import View


def view(setting: Setting, state: State, at: int) -> View:
    """What this node knows, with its peers' answers if it asks them now."""
    node = state.nodes[at]
    own = node.own if setting.cold else (node.word, node.lease) if node.keyed else None
    if talks(state, node) and not setting.cold:
        key = state.etcd.key(at, node.boot)
        own = None if key is None else (key.word if node.sent != node.word else node.word, key.lease)
    silent = node.age >= DEAF or node.dropped or own is None or own[1] != node.lease
    asks = silent and values.is_busy(node.word) and "hold" not in setting.away
    return View(
        node=at,
        boot=node.boot,
        lease=node.lease,
        dropped=node.dropped,
        age=node.age,
        heard=node.heard if "promise" not in setting.away else NO_PROMISE,
        granted=node.granted if "promise" not in setting.away else NO_PROMISE,
        own=own,
        word=node.word,
        raised=node.raised,
        warned=node.warned,
        plan=node.plan,
        alarms=node.alarms,
        office=node.office,
        keys=node.keys,
        answers=_answers(setting, state, at) if asks else (),
        finished=node.finished,
        waiting=node.waiting,
    )


def judged(setting: Setting, state: State, at: int, *, late: bool = False) -> Verdict:
    """``late``: whoever is missing was waited for."""
    seen = view(setting, state, at)
    return mind.verdict(setting.away, setting.members, setting.least, seen, stays=setting.stays, late=late)


def _answers(setting: Setting, state: State, at: int) -> tuple[Answer, ...]:
    """What the peers that can be reached answer; whoever holds goes by what they answered since the tick."""
    node = state.nodes[at]
    if node.held or "unanimity" in setting.away:
        roster = values.plan_of(node.plan).roster
        life = node.word.incarnation
        return tuple(Answer(values.index(one.node), int(one.boot), life) for one in roster.entries)
    if setting.rounds:
        return tuple(one._replace(age=0) for one in node.got) if "asked" in setting.away else node.got
    return tuple(deaf_peers(setting, state, at))


def deaf_peers(setting: Setting, state: State, at: int) -> Iterator[Answer]:
    """What those peers say that can be reached and are as deaf."""
    node = state.nodes[at]
    for other, peer in enumerate(state.nodes):
        if other != at and _says_deaf(setting, node, peer, other):
            yield Answer(other, peer.boot, peer.word.incarnation)


def _says_deaf(setting: Setting, node: Node, peer: Node, other: int) -> bool:
    if peer.up != UP or NOBODY in (peer.net, node.net) or peer.phase in ("fenced", "killed", "ended"):
        return False
    heard = peer.heard if "promise" not in setting.away else NO_PROMISE
    return mind.answers(other, peer.boot, peer.word, peer.lease, peer.age, heard, peer.dropped)


def past_lease(node: Node) -> bool:
    return not node.keyed or node.dropped or not node.lease or node.age >= FENCE
