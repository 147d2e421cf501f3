"""Everything that can happen next: what nodes do by the product's word, what etcd does, time, and faults.

Urgency: a tick may not pass a moment at which somebody who is awake (or the deadman of a frozen node) has to
act. Healthy nodes renew their leases inside the tick. ``Setting.away`` names guards that a mutant lacks.
"""

from collections.abc import Iterator

from model import values
from model.cluster import (
    DEAD,
    DEAF,
    FROZEN,
    LATEST,
    NO_PROMISE,
    TTL,
    UP,
    Etcd,
    Key,
    Node,
    Office,
    Setting,
    State,
    Step,
    Word,
    put,
    set_node,
    talks,
)
from model.doings import after_the_wait, answered, decided, heard, hurried, plain
from model.etcd import ends_leases
from model.faults import around, deadman_is_due, faults
from model.senses import judged
from model.work import worked


def training(setting: Setting) -> State:
    """Incarnation 0 trains, node 0 coordinates."""
    plan = values.first_plan(setting.members)
    joined = Word(-1, "joined", open=setting.open)
    member = Node(
        lease=1, keyed=True, phase="run", incarnation=0, word=Word(0, "running"), plan=plan, office=(0, 0, 1)
    )
    spare = member._replace(phase="idle", incarnation=-1, word=joined)
    nodes = tuple(member if at < setting.members else spare for at in range(setting.nodes))
    keys = tuple(Key(at, 0, node.word, 1) for at, node in enumerate(nodes))
    nodes = put(nodes, 0, member._replace(keys=keys))
    leases = tuple((at, 1, 0) for at in range(setting.nodes))
    etcd = Etcd(plan=plan, office=Office(0, 0, 1, 1), token=1, keys=keys, leases=leases)
    return State(nodes, etcd, setting.faults)


def begun(setting: Setting) -> State:
    """Where an exploration begins."""
    return _before_the_first_plan(setting) if setting.cold else training(setting)


def _before_the_first_plan(setting: Setting) -> State:
    """Every node's supervisor has started and looked through the checkpoints; nobody has joined."""
    node = Node(word=Word(-1, "joined", 0))
    return State((node,) * setting.nodes, Etcd(), setting.faults)


def steps(setting: Setting, state: State) -> Iterator[Step]:
    """Every thing that can happen next."""
    for label, after, fault, fate in _steps(setting, state):
        for at, node in enumerate(after.nodes):
            if node is not state.nodes[at]:
                after = hurried(setting, set_node(after, at, plain(node)), at)  # noqa: PLW2901
        yield Step(label, after, fault, fate or fault)


def _steps(setting: Setting, state: State) -> Iterator[Step]:
    overdue = False
    for at, node in enumerate(state.nodes):
        yield from (step._replace(fate=True) for step in around(setting, state, at, node))
        if node.up == UP and node.phase not in ("ended", "fenced"):
            verdict = judged(setting, state, at)
            late = verdict.overdue and values.is_busy(node.word)
            overdue = overdue or late
            yield from decided(setting, state, at, verdict)
            if setting.least and verdict.waits:
                yield from after_the_wait(setting, state, at, judged(setting, state, at, late=True))
            if setting.rounds:
                yield from answered(setting, state, at, node)
            if not (late and "fence" not in setting.away):
                yield from heard(setting, state, at, node)
        if node.up == UP:
            yield from worked(setting, state, at, node)
        elif node.up == FROZEN and deadman_is_due(setting, node):
            overdue = True
            yield Step(
                f"{at}: its deadman kills ranks of {node.incarnation}",
                set_node(state, at, node._replace(phase="killed")),
            )
    yield from (step._replace(fate=True) for step in ends_leases(state))
    if not overdue:
        yield Step("tick", _tick(state))
    if state.left:
        yield from faults(setting, state)


def _tick(state: State) -> State:
    etcd, nodes, renewed = state.etcd, [], set()
    for at, node in enumerate(state.nodes):
        if node.up == DEAD or node.phase == "ended":
            nodes.append(node)
            continue
        alive = bool(node.lease) and not node.dropped
        renews = alive and talks(state, node) and etcd.has_lease(at, node.lease)
        if renews:
            renewed.add((at, node.lease))
        heard = 0 if renews and node.age >= DEAF else min(node.heard + 1, NO_PROMISE)
        nodes.append(
            node._replace(
                age=0 if renews or not node.lease else min(node.age + 1, TTL),
                heard=heard,
                granted=min(node.granted + 1, NO_PROMISE),
                held=False,
                asked=tuple(one._replace(age=one.age + 1) for one in node.asked if one.age < LATEST),
                got=(),
            )
        )
    leases = tuple(
        (*one[:2], 0 if one[:2] in renewed else min(one[2] + 1, TTL)) if etcd.up else one
        for one in etcd.leases
    )
    return state._replace(nodes=tuple(nodes), etcd=etcd._replace(leases=leases))
