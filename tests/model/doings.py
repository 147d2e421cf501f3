"""What nodes do: the acts that the product asks for, and what supervisors do about them."""

from collections.abc import Iterator

from faultrun.nodes.values.roster import PlanPhase
from model import values
from model.cluster import NO_PROMISE, NOBODY, UP, Answer, Node, Setting, State, Step, Word, set_node, talks
from model.etcd import written
from model.mind import Move, Verdict, says_done
from model.senses import deaf_peers, judged, past_lease
from model.work import worked


def hurried(setting: Setting, state: State, at: int) -> State:
    """The state after what this node does by itself, if that takes no time: in a coarser grain.

    A statement that is written late and one that is read late are the same to who reads it.
    """
    node = state.nodes[at]
    while not setting.fine and node.up == UP and node.phase in ("prepare", "killed", "look", "fenced"):
        step, *other = worked(setting, state, at, node)
        if other:
            break  # what it sees depends on when it looks
        state = step.state
        node = state.nodes[at]
    if not setting.fine and node.phase != "ended" and talks(state, node) and node.lease and not node.dropped:
        key = state.etcd.key(at, node.boot)
        if key is None or (key.word, key.lease) != (node.word, node.lease):
            for move in judged(setting, state, at).moves:
                if move.kind == "write" and any(operation[0] == "word" for operation in move.then):
                    after = written(setting, state.etcd, move)
                    return (
                        set_node(state, at, _has_stated(setting, node), after)
                        if after != state.etcd
                        else state
                    )
    return state


def plain(node: Node) -> Node:
    """Without what it heard or said of incarnations that are over for it anyway."""
    known = {life for life, _ in node.alarms}
    if node.warned >= 0 and (node.warned < node.incarnation or node.warned in known):
        node = node._replace(warned=-1)
    if node.waiting and node.phase != "run":
        node = node._replace(waiting=())
    if any(one.incarnation < node.incarnation for one in node.finished):
        newer = tuple(one for one in node.finished if one.incarnation >= node.incarnation)
        node = node._replace(finished=newer)
    if node.raised >= 0 and (node.raised < node.incarnation or node.raised in known):
        node = node._replace(raised=-1)
    return node


def decided(setting: Setting, state: State, at: int, verdict: Verdict) -> Iterator[Step]:
    """The acts of the product's judgement."""
    node = state.nodes[at]
    if not verdict.overdue and not node.held and values.is_busy(node.word) and past_lease(node):
        yield Step(f"{at}: every peer is deaf, holds", set_node(state, at, node._replace(held=True)))
    for move in verdict.moves:
        if move.kind == "write":
            yield from _write(setting, state, at, move)
        elif move.kind == "grant":
            yield from _grant(state, at)
        elif move.kind == "warn":
            yield from _warn(state, at, move)
        elif move.kind == "ask" and not values.is_busy(node.word):
            yield from _asks_who_has_finished(setting, state, at, move)
        elif not (_is_asked_in_time(state, at) if move.kind == "end" else _waits(setting, state, at, move)):
            new = _stays(node, at, move) if move.kind == "stay" else told(node, move)
            if new != node:
                words = f"is told {move.kind} {move.number}"
                words = f"fences itself: {move.words}" if move.kind == "fence" else words
                yield Step(f"{at}: {words}", set_node(state, at, new))


def after_the_wait(setting: Setting, state: State, at: int, late: Verdict) -> Iterator[Step]:
    """What a coordinator writes once whoever is missing was waited for, as it may be at any moment."""
    for move in late.moves:
        if move.kind == "write" and any(operation[0] == "plan" for operation in move.then):
            yield from _write(setting, state, at, move)


def told(node: Node, move: Move) -> Node:
    """What the supervisor does about it; ``decide`` does the same (``test_supervisor_as_modelled``)."""
    match move.kind:
        case "fence":
            idle = node.phase == "ready"  # it has no workers: it says so at once
            return node._replace(
                phase="idle" if idle else "fenced",
                word=Word(node.incarnation, "joined", -1) if idle else node.word,
                boot=node.boot + 1,
                lease=0,
                dropped=False,
                age=0,
                heard=NO_PROMISE,
                granted=NO_PROMISE,
                keyed=False,
                held=False,
                office=None,
                keys=None,
                raised=-1,
                warned=-1,
                own=None,
                asked=(),
                got=(),
            )
        case "plan" if node.phase == "stay" and move.number > node.incarnation:
            return node._replace(
                phase="join", incarnation=move.number, word=Word(move.number, "running"), raised=-1
            )
        case "plan" if node.phase in ("idle", "prepare", "ready") and move.number > node.incarnation:
            planned = node._replace(phase="prepare", incarnation=move.number)
            return planned._replace(struck=False, raised=-1, forgot=False)
        case "go" if node.phase == "ready" and node.incarnation == move.number:
            newcomer = bool(node.plan and values.plan_of(node.plan).body.kept)
            return node._replace(phase="join" if newcomer else "run", word=Word(move.number, "running"))
        case "over" if node.incarnation == move.number and node.phase in ("prepare", "ready"):
            return node._replace(phase="idle", word=Word(move.number, "joined", -1))
        case "over" if node.incarnation == move.number and node.phase in ("run", "stay", "join"):
            return node._replace(phase="drain")
        case "waiting" if node.phase == "run":
            return node._replace(waiting=move.members)
        case "look" if node.phase in ("idle", "look", "fenced") and node.look < move.number:
            return node._replace(phase="fenced" if node.phase == "fenced" else "look", look=move.number)
        case "end" if node.phase in ("idle", "prepare", "ready", "look", "fenced"):
            return node._replace(phase="ended")
        case _:
            return node


def _stays(node: Node, at: int, move: Move) -> Node:
    """Its ranks leave their group, and it says who lives."""
    seats = [values.index(entry.node) for entry in values.plan_of(node.plan).roster.entries]
    if node.incarnation != move.number or node.phase not in ("run", "join") or at not in seats:
        return node
    return node._replace(phase="stay", word=Word(move.number, "replacing", kept=seats.index(at)))


def answered(setting: Setting, state: State, at: int, node: Node) -> Iterator[Step]:
    """A peer answers, and the answer comes, at any moment until it is too old to count."""
    if past_lease(node) and values.is_busy(node.word) and not node.held:
        for answer in deaf_peers(setting, state, at):
            if answer not in (*node.asked, *node.got):
                asked = tuple(sorted((*node.asked, answer)))
                yield Step(f"{answer.node}: answers {at}", set_node(state, at, node._replace(asked=asked)))
    for answer in node.asked:
        new = node._replace(
            asked=tuple(one for one in node.asked if one != answer), got=tuple(sorted({*node.got, answer}))
        )
        yield Step(f"{at}: hears {answer.node}, asked {answer.age} ago", set_node(state, at, new))


def _waits(setting: Setting, state: State, at: int, move: Move) -> bool:
    return move.kind == "fence" and _hears_in_time(setting, state, at)


def _is_asked_in_time(state: State, at: int) -> bool:
    """Whether a peer that has finished and can be reached has yet to ask: it does before this node leaves."""
    node = state.nodes[at]
    if node.plan != state.etcd.plan or values.plan_of(node.plan).header.phase is PlanPhase.FINISHED:
        return False
    said = Answer(at, node.boot, node.word.incarnation)
    return any(
        peer.word[:2] == node.word[:2] and said not in peer.finished and peer.phase != "ended"
        for peer in state.nodes
        if peer is not node and peer.up == UP and NOBODY not in (peer.net, node.net)
    )


def _hears_in_time(setting: Setting, state: State, at: int) -> bool:
    """Whether a peer that can be reached has yet to answer: questions go out long before the end."""
    node = state.nodes[at]
    return setting.rounds and any(one not in node.got for one in deaf_peers(setting, state, at))


def _grant(state: State, at: int) -> Iterator[Step]:
    node, etcd = state.nodes[at], state.etcd
    if not talks(state, node):
        return
    taken = {number for who, number, _ in etcd.leases if who == at} | {node.lease}
    number = next(number for number in range(1, 9) if number not in taken)
    again = 0 if node.lease else NO_PROMISE
    new = node._replace(lease=number, dropped=False, age=0, heard=again, granted=0, keyed=False)
    after = set_node(state, at, new, etcd._replace(leases=(*etcd.leases, (at, number, 0))))
    yield Step(f"{at}: gets lease {number}", after)


def _warn(state: State, at: int, move: Move) -> Iterator[Step]:
    node = state.nodes[at]
    for other in move.members:
        peer = state.nodes[other]
        reached = peer.up == UP and NOBODY not in (peer.net, node.net) and peer.phase != "ended"
        if (
            reached
            and peer.warned < move.number
            and peer.incarnation == move.number
            and peer.phase in ("prepare", "ready", "run")
        ):
            yield Step(
                f"{at}: tells {other} that {move.number} is over",
                set_node(state, other, peer._replace(warned=move.number)),
            )


def _asks_who_has_finished(setting: Setting, state: State, at: int, move: Move) -> Iterator[Step]:
    """Each tells the other how far it is; only that all have finished stays true."""
    node = state.nodes[at]
    for other in move.members:
        peer = state.nodes[other]
        if peer.up != UP or NOBODY in (peer.net, node.net) or peer.phase in ("fenced", "killed", "ended"):
            continue
        after = set_node(state, at, _hears(setting, node, other, peer))
        after = set_node(after, other, _hears(setting, peer, at, node))
        if after != state:
            yield Step(f"{at} and {other}: tell one another how far they are", after)


def _hears(setting: Setting, node: Node, other: int, peer: Node) -> Node:
    """Who was told so once goes by it, whatever it is told later."""
    said = Answer(other, peer.boot, peer.word.incarnation)
    plan = 0 if "silenced" in setting.away else peer.plan
    if said in node.finished or not says_done(other, peer.boot, peer.word, plan):
        return node
    return node._replace(finished=tuple(sorted((*node.finished, said))))


def _write(setting: Setting, state: State, at: int, move: Move) -> Iterator[Step]:
    node = state.nodes[at]
    if not talks(state, node):
        return
    after = written(setting, state.etcd, move)
    kinds = {str(operation[0]) for operation in move.then}
    if after != state.etcd:
        new = _has_stated(setting, node) if "word" in kinds else node
        yield Step(f"{at}: {move.words}", set_node(state, at, new, after))
    for kind, fault in (("plan", "slow"), ("word", "slowput")):
        if state.left and kind in kinds and fault in setting.kinds and not node.late:
            late = (_has_stated(setting, node) if kind == "word" else node)._replace(late=(move,))
            later = set_node(state, at, late)._replace(left=state.left - 1)
            yield Step(f"FAULT {at}: {move.words}, which travels slowly", later, True)


def _has_stated(setting: Setting, node: Node) -> Node:
    return node._replace(
        keyed=node.keyed or not setting.cold, sent=node.word if "restating" in setting.away else None
    )


def heard(setting: Setting, state: State, at: int, node: Node) -> Iterator[Step]:
    """What etcd answers and shows."""
    etcd = state.etcd
    if not talks(state, node):
        return
    key = etcd.key(at, node.boot) if setting.cold else None
    read = None if key is None else (key.word, key.lease)
    if setting.cold and read != node.own:
        keyed = read is not None and read[1] == node.lease and not node.dropped
        yield Step(f"{at}: reads its own key", set_node(state, at, node._replace(own=read, keyed=keyed)))
    if node.lease and not node.dropped:
        if not etcd.has_lease(at, node.lease):
            yield Step(
                f"{at}: hears that its lease is gone",
                set_node(state, at, node._replace(dropped=True, keyed=False)),
            )
        elif node.age:
            leases = tuple((*one[:2], 0) if one[:2] == (at, node.lease) else one for one in etcd.leases)
            new = node._replace(age=0, heard=0, held=False)
            yield Step(f"{at}: renews its lease", set_node(state, at, new, etcd._replace(leases=leases)))
    office = None if etcd.office is None else etcd.office[:3]
    if (node.plan, node.alarms, node.office) != (etcd.plan, etcd.alarms, office):
        leads = office is not None and office[:2] == (at, node.boot)
        new = node._replace(
            plan=etcd.plan, alarms=etcd.alarms, office=office, keys=node.keys if leads else None
        )
        yield Step(f"{at}: reads all/", set_node(state, at, new))
    if node.office is not None and node.office[:2] == (at, node.boot) and node.keys != etcd.keys:
        yield Step(f"{at}: reads node/", set_node(state, at, node._replace(keys=etcd.keys)))
