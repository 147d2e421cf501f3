"""What can go wrong, once for each fault that is left, and what ends it."""

from collections.abc import Iterator

from model.cluster import (
    DEAD,
    FROZEN,
    GHOST,
    NO_ETCD,
    NOBODY,
    UP,
    WHOLE,
    Key,
    Node,
    Setting,
    State,
    Step,
    Word,
    set_node,
)
from model.etcd import written
from model.mind import Move
from model.senses import past_lease


def around(setting: Setting, state: State, at: int, node: Node) -> Iterator[Step]:
    """What ends a fault."""
    if node.late and state.etcd.up:
        (move,) = node.late
        assert isinstance(move, Move)
        after = written(setting, state.etcd, move)
        yield Step(
            f"{at}: its slow write arrives: {move.words}", set_node(state, at, node._replace(late=()), after)
        )
    if node.up == DEAD:
        life = max(node.incarnation, node.word.incarnation)
        new = Node(boot=node.boot + 1, phase="fenced", incarnation=life, look=node.look, late=node.late)
        new = new._replace(forgot=True, incarnation=-1, look=0) if setting.forgets else new
        yield Step(f"{at}: its host comes back", set_node(state, at, new))
    elif node.up == FROZEN:
        yield Step(f"{at}: thaws", set_node(state, at, node._replace(up=UP)))
    if node.net != WHOLE and node.up != DEAD:
        yield Step(f"{at}: its network heals", set_node(state, at, node._replace(net=WHOLE)))


def deadman_is_due(setting: Setting, node: Node) -> bool:
    return node.has_ranks and past_lease(node) and not node.held and "deadman" not in setting.away


def faults(setting: Setting, state: State) -> Iterator[Step]:
    for at, node in enumerate(state.nodes):
        if node.up != DEAD:
            yield from _strikes(setting, state, at, node)
    etcd, left = state.etcd, state.left - 1
    if "away" in setting.kinds and etcd.up:
        yield Step("FAULT etcd goes away", state._replace(etcd=etcd._replace(up=False), left=left), True)
    if "hosts" in setting.kinds:
        dead = tuple(node if node.up == DEAD else _dead(node) for node in state.nodes)
        yield Step("FAULT every host dies", state._replace(nodes=dead, left=left), True)
    if "cutall" in setting.kinds:
        cut = tuple(
            node._replace(net=NO_ETCD) if node.up != DEAD and node.net == WHOLE else node
            for node in state.nodes
        )
        yield Step("FAULT every node is cut off from etcd", state._replace(nodes=cut, left=left), True)


def _dead(node: Node) -> Node:
    incarnation, look = node.incarnation, node.look
    return Node(up=DEAD, boot=node.boot, incarnation=incarnation, look=look, word=node.word, late=node.late)


def _strikes(setting: Setting, state: State, at: int, node: Node) -> Iterator[Step]:
    left = state.left - 1

    def struck(what: str, new: Node, charges: int = 0) -> Step:
        return Step(
            f"FAULT {at}: {what}",
            set_node(state, at, new)._replace(left=left, charges=charges or state.charges),
            fault=True,
        )

    if "rank" in setting.kinds and node.phase == "run" and node.up == UP:
        life = node.incarnation
        fell = node._replace(phase="drain", raised=life, struck=True)
        yield struck("a rank dies", fell, state.charges + 1)
    if "stop" in setting.kinds and node.phase == "run" and node.up == UP:
        yield struck("is told to stop", node._replace(phase="drain", raised=node.incarnation, stopped=True))
    if "host" in setting.kinds:
        yield struck("its host dies", _dead(node))
    if "freeze" in setting.kinds and node.up == UP:
        yield struck("freezes", node._replace(up=FROZEN))
    if "cut" in setting.kinds and node.net == WHOLE:
        yield struck("is cut off from etcd", node._replace(net=NO_ETCD))
    if "isolate" in setting.kinds and node.net != NOBODY:
        yield struck("is cut off from all", node._replace(net=NOBODY))
    if "usurp" in setting.kinds and state.etcd.up and node.has_ranks and state.etcd.key(at, GHOST) is None:
        etcd = state.etcd
        ghost = Key(at, GHOST, Word(-1, "joined"), 9)
        keys = tuple(sorted((*etcd.keys, ghost)))
        joined = etcd._replace(keys=keys, leases=(*etcd.leases, (at, 9, 0)))
        yield Step(
            f"FAULT {at}: another host joins under its name", state._replace(etcd=joined, left=left), True
        )
