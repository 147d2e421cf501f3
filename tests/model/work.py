"""What a supervisor does without being told: it prepares, saves, drains, looks."""

from collections.abc import Iterator

from model import values
from model.cluster import UP, Node, Setting, State, Step, Word, set_node


def worked(setting: Setting, state: State, at: int, node: Node) -> Iterator[Step]:
    """What a supervisor does without being told."""
    life, disk = node.incarnation, state.disk
    match node.phase:
        case "run":
            yield from _trained(setting, state, at, node)
        case "stay" | "join" if not _are_one_group(state, node):
            given_up = node._replace(phase="drain", raised=life)
            yield Step(f"{at}: waits no longer for one group of {life}", set_node(state, at, given_up))
        case "join":
            yield Step(f"{at}: all are one group of {life}", set_node(state, at, node._replace(phase="run")))
        case "prepare":
            ready = node._replace(phase="ready", word=Word(life, "ready"))
            yield Step(f"{at}: has prepared {life}", set_node(state, at, ready))
        case "idle" if node.stopped:
            yield Step(f"{at}: leaves", set_node(state, at, node._replace(phase="ended")))
        case "drain":
            gone = _after_the_drain(node)
            yield Step(f"{at}: its ranks of {life} are gone", set_node(state, at, gone))
            if setting.saves and disk <= life:
                saved = set_node(state, at, gone)._replace(disk=life + 1)
                yield Step(f"{at}: saves {life + 1}; its ranks are gone", saved)
        case "killed":
            over = node._replace(phase="look", raised=life)
            yield Step(f"{at}: finds its ranks of {life} killed", set_node(state, at, over))
        case "look" | "fenced" if node.stopped:
            yield Step(f"{at}: has no ranks any more", set_node(state, at, _after_the_drain(node)))
        case "look" | "fenced":
            yield from _looked(setting, state, at, node)


def _trained(setting: Setting, state: State, at: int, node: Node) -> Iterator[Step]:
    """What its ranks may do by themselves."""
    life, disk = node.incarnation, state.disk
    if setting.ends:
        yield Step(f"{at}: its ranks of {life} end well", set_node(state, at, ended(node)))
    if node.waiting:
        more = node._replace(phase="drain", raised=life)
        newest = max(disk, life + 1) if setting.saves else disk
        yield Step(f"{at}: saves, to be more", set_node(state, at, more)._replace(disk=newest))
    if setting.forgets and not node.word.saved:
        told = node._replace(word=node.word._replace(saved=True))
        saved = set_node(state, at, told)._replace(disk=max(disk, life + 1))
        yield Step(f"{at}: saves {life + 1} and trains on", saved)


def _after_the_drain(node: Node) -> Node:
    """It looks through the checkpoints, unless it is about to leave."""
    if not node.stopped:
        return node._replace(phase="look")
    return node._replace(phase="idle", word=Word(node.incarnation, "drained", -1, stop=True))


def _looked(setting: Setting, state: State, at: int, node: Node) -> Iterator[Step]:
    """What it sees of the saves, and says."""
    life, blind = node.incarnation, state.disk if node.forgot else node.blind
    point = state.disk if setting.saves and state.disk > blind else 0
    done = node.phase == "look" and node.word[:2] == (life, "done")
    status = "done" if done and "stays_done" not in setting.away else "joined"
    knows = setting.forgets and point > 0
    word = Word(life, status, node.look, point, node.struck, open=setting.open, saved=knows)
    looked = node._replace(phase="idle", word=word, blind=blind)
    yield Step(f"{at}: has looked, point {point}", set_node(state, at, looked))
    if setting.torn and not point and any(one.phase == "drain" for one in state.nodes):
        torn = looked._replace(word=word._replace(lacks=True))
        yield Step(f"{at}: has looked, half a save", set_node(state, at, torn))


def _are_one_group(state: State, node: Node) -> bool:
    """Whether everybody whom the plan names is there."""
    header, roster, _ = values.plan_of(node.plan)
    members = [(state.nodes[values.index(one.node)], int(one.boot)) for one in roster.entries]
    return header.incarnation == node.incarnation and all(
        (one.boot, one.up, one.incarnation) == (boot, UP, node.incarnation) and one.phase in ("join", "run")
        for one, boot in members
    )


def ended(node: Node) -> Node:
    """The node after all its ranks have come to their end."""
    return node._replace(phase="idle", word=Word(node.incarnation, "done", -1))
