"""What must never be, what must be possible from everywhere, and what must have happened at all."""

from collections.abc import Callable

from faultrun.errors import NoWholeCheckpoint
from faultrun.model.plan import Ledger
from faultrun.nodes.values.roster import PlanPhase
from model import values
from model.cluster import UP, WHOLE, Node, Setting, State
from model.senses import judged

_ORDER = [PlanPhase.PREPARE, PlanPhase.GO, PlanPhase.LOOK, PlanPhase.FINISHED]


def broken(setting: Setting, before: State, after: State) -> str:
    """The law that this step breaks, or nothing."""
    lives = {node.incarnation for node in after.nodes if node.has_ranks}
    if len(lives) > 1 and not _kept(after):
        return f"ranks of {sorted(lives)} live at once"
    well = after.left == setting.faults
    if well and any(now.boot > was.boot for was, now in zip(before.nodes, after.nodes, strict=True)):
        return "a node fences itself although nothing has happened"
    if any(
        now.phase == "ended" != was.phase and _is_needed(now, after)
        for was, now in zip(before.nodes, after.nodes, strict=True)
    ):
        return "a node ends with 0 although the others begin again"
    if before.etcd.plan != after.etcd.plan:
        bad = _broken_by_a_plan(setting, before, after)
        return bad or ("a second plan although nothing has happened" if well and _is_second(after) else "")
    if setting.kinds <= {"away"} and any(
        was.has_ranks and not now.has_ranks and now.word.status != "done"
        for was, now in zip(before.nodes, after.nodes, strict=True)
    ):
        return "ranks ended although only etcd was away"
    return ""


def _is_needed(node: Node, state: State) -> bool:
    """Whether what it has finished is planned once more, and not every rank of that has ended well."""
    plan = values.plan_of(state.etcd.plan)
    done = node.word.status == "done" and node.word.incarnation < plan.header.incarnation
    return done and plan.header.phase is not PlanPhase.FINISHED and not _all_done(plan, state)


def _kept(state: State) -> bool:
    """Whether nobody trains: survivors wait for the plan that keeps them, or for one another under it."""
    written = values.plan_of(state.etcd.plan)
    life = written.header.incarnation

    def waits(node: Node) -> bool:
        if node.incarnation == life:
            return node.phase != "run"
        return node.incarnation == life - 1 and node.phase in ("stay", "drain")

    return bool(written.body.kept) and all(waits(node) for node in state.nodes if node.has_ranks)


def _broken_by_a_plan(setting: Setting, before: State, after: State) -> str:
    now = values.plan_of(after.etcd.plan)
    if not before.etcd.plan:
        return ""
    was = values.plan_of(before.etcd.plan)
    if was.header.phase is PlanPhase.FINISHED:
        return "the run goes on after its end"
    if now.header.phase is PlanPhase.FINISHED and not now.header.exit_code and not _all_done(now, after):
        return "the run ends with 0 although ranks have not"
    if _place(now) < _place(was):
        return "the plan goes back"
    life = now.header.incarnation
    if life > was.header.incarnation:
        if any(node.phase == "ended" and node.word[:2] == (life - 1, "done") for node in after.nodes):
            return f"incarnation {life} is planned although a node has ended with 0"
        stranger = _given_away(was, now)
        if stranger is not None:
            return f"incarnation {life} keeps rank {stranger}, whose place another node has"
        if any(node.has_ranks and node.incarnation < life for node in after.nodes) and not _kept(after):
            return f"incarnation {life} is planned while ranks of an older one live"
    bad = _broken_by_what_is_known(setting, was, now, after)
    if bad:
        return bad
    bad = _miscounted(was.body.ledger, now.body.ledger, after.charges)
    return bad or (_left(setting, was, now, after) if life > was.header.incarnation else "")


def _miscounted(had: Ledger, spent: Ledger, faults: int) -> str:
    if len(spent.restarts) > faults:
        return f"{len(spent.restarts)} restarts charged for {faults} faults"
    if spent.total_restarts < had.total_restarts:
        return f"{spent.total_restarts} restarts after {had.total_restarts}"
    return ""


def _broken_by_what_is_known(setting: Setting, was: values.Written, now: values.Written, after: State) -> str:
    """Whether the run goes back behind a save, begins anew beside one, or ends although one is known."""
    step = None if now.body.point is None else now.body.point.global_step
    if now.header.incarnation > was.header.incarnation and not now.body.kept:
        if was.header.saved and step is None:
            return "it begins from nothing although everybody could know that it has saved"
        # Nobody may have been left to tell of it.
        if setting.saves and (step or 0) < after.disk and (step or not setting.forgets):
            return f"it begins at {step} although {after.disk} was saved"
    if was.header.saved and not now.header.saved:
        return "the run forgets that it has saved"
    if now.header.exit_code == NoWholeCheckpoint.exit_code and setting.torn:
        return "it ends for what a node saw while others saved"
    if now.header.exit_code == NoWholeCheckpoint.exit_code and not setting.forgets:
        return "it begins at no save, and so ends, although nobody has forgotten any"
    return ""


def _given_away(was: values.Written, now: values.Written) -> int | None:
    """A rank that is kept although its node, or the supervisor there, is another one."""

    def seats(written: values.Written) -> dict[int, tuple[str, str]]:
        plan = written.roster.completes(written.body)
        places = [(entry, plan.topology.ranks_of(entry.node)) for entry in written.roster.entries]
        return {rank: (entry.node, entry.boot) for entry, ranks in places for rank in ranks}

    before, after = seats(was), seats(now)
    return next((rank for rank in sorted(now.body.kept) if before.get(rank) != after.get(rank)), None)


def _left(setting: Setting, was: values.Written, now: values.Written, after: State) -> str:
    """Whether too few go on, a seat is forgotten, or a member is left out that the store still knows."""
    count, life = len(now.roster.entries), now.header.incarnation
    if not was.roster.entries:
        return ""
    if count < (setting.least or len(was.roster.entries)):
        return f"incarnation {life} has too few nodes: {count}"
    if count + _vacant(now) != len(was.roster.entries) + _vacant(was):
        return f"incarnation {life} has {count} nodes, and not every seat that is missing is vacant"
    aside = set() if now.body.slots is None else {one.node for one in now.body.slots.nodes}
    stay = (key for key in after.etcd.keys if not key.word.stop)
    there = {(values.node_id(key.node), values.boot_id(key.boot)) for key in stay}
    for one in was.roster.entries:
        if (one.node, one.boot) in there and one.node not in aside and not now.roster.has(one.node, one.boot):
            return f"incarnation {life} leaves out {one.node}, which is there"
    return ""


def _vacant(written: values.Written) -> int:
    return 0 if written.body.slots is None else len(written.body.slots.vacant)


def _is_second(after: State) -> bool:
    return values.plan_of(after.etcd.plan).header.incarnation > 0


def _all_done(plan: values.Written, after: State) -> bool:
    """Whether every member has come to its end, those that are gone since left out."""
    done = (plan.header.incarnation, "done")
    members = [(after.nodes[values.index(one.node)], int(one.boot)) for one in plan.roster.entries]
    return all(node.word[:2] == done or node.boot != boot for node, boot in members)


def _place(written: values.Written) -> tuple[int, int, int]:
    header = written.header
    return header.incarnation, _ORDER.index(header.phase), header.look


def good(setting: Setting, state: State) -> bool:
    """All train, the run has ended, or the run waits for a node and says for which."""
    if all(node.phase == "ended" or node.up != UP for node in state.nodes):
        return True
    if not state.etcd.up:
        return False
    if not state.etcd.plan:
        return _waits_for_somebody(setting, state)
    header, roster, _ = values.plan_of(state.etcd.plan)
    if header.phase is PlanPhase.FINISHED:
        return all(node.phase == "ended" or node.up != UP or node.net != WHOLE for node in state.nodes)
    if header.phase is PlanPhase.GO and all(life != header.incarnation for life, _ in state.etcd.alarms):
        members = [(state.nodes[values.index(one.node)], int(one.boot)) for one in roster.entries]
        if all(
            (node.boot, node.up, node.phase, node.incarnation) == (boot, UP, "run", header.incarnation)
            for node, boot in members
        ):
            return True
    return _waits_for_somebody(setting, state)


def _waits_for_somebody(setting: Setting, state: State) -> bool:
    up = (at for at, node in enumerate(state.nodes) if node.up == UP and node.net == WHOLE)
    there = [at for at in up if state.nodes[at].phase != "ended"]
    if len(there) >= setting.members or any(node.has_ranks for node in state.nodes):
        return False
    waits = [judged(setting, state, at).waits for at in there]
    return any(set(words.split(", ")) & {*values.NAMES, "another node"} for words in waits)


def _leader(state: State) -> tuple[bool, bool]:
    office = state.etcd.office
    if office is None:
        return False, False
    if not state.etcd.plan:
        return True, False
    member = values.plan_of(state.etcd.plan).roster.has(
        values.node_id(office.node), values.boot_id(office.boot)
    )
    return True, not member


def _life(state: State) -> int:
    """The incarnation that trains; -1: none does."""
    return max((node.incarnation for node in state.nodes if node.phase == "run"), default=-1)


def _vacant_now(state: State) -> int:
    """Of the incarnation that trains."""
    written = values.plan_of(state.etcd.plan) if state.etcd.plan else None
    trains = written is not None and _life(state) == written.header.incarnation
    return _vacant(written) if written is not None and trains else 0


def _replacing(state: State) -> set[str]:
    return {one.by for one in values.plan_of(state.etcd.plan).body.replaced} if state.etcd.plan else set()


SOMETIMES: dict[str, Callable[[State], bool]] = {
    "trains": lambda state: any(node.phase == "run" for node in state.nodes),
    "trains again": lambda state: any(node.phase == "run" and node.incarnation > 0 for node in state.nodes),
    "spare used": lambda state: any(
        node.phase == "run" and node.boot == 0 and values.node_id(at) in _replacing(state)
        for at, node in enumerate(state.nodes)
    ),
    "stayed": lambda state: any(
        node.phase == "run" and values.plan_of(node.plan).body.kept and node.incarnation > 0
        for node in state.nodes
        if node.plan
    ),
    "fewer": lambda state: _vacant_now(state) > 0,
    "all again": lambda state: _vacant_now(state) == 0 and _life(state) > 1,
    "held": lambda state: any(node.held and node.has_ranks for node in state.nodes),
    "fenced": lambda state: any(node.boot > 0 and node.up == UP for node in state.nodes),
    "another coordinator": lambda state: state.etcd.token > 1,
    "an heir leads": lambda state: _leader(state)[1],
    "ended": lambda state: any(node.phase == "ended" for node in state.nodes),
    "refused": lambda state: (
        bool(state.etcd.plan)
        and values.plan_of(state.etcd.plan).header.exit_code == NoWholeCheckpoint.exit_code
    ),
    "half a save": lambda state: any(key.word.lacks for key in state.etcd.keys),
    "looked again": lambda state: any(node.look > 0 and node.phase == "idle" for node in state.nodes),
}
