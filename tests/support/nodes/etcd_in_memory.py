"""Nodes of one run around an etcd in memory, as ``judge`` sees them; all happens when the test says so."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from faultrun.core.plan.next_plan import Rules
from faultrun.errors import assert_never
from faultrun.model.events import GoGiven, PlanAdopted
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from faultrun.nodes.protocol.judge import judge
from faultrun.nodes.protocol.lease_deadline import answer, granted, renewed, tried
from faultrun.nodes.values.lease import Lease, LeaseTimes
from faultrun.nodes.values.membership import (
    ALARMS,
    COORDINATOR_KEY,
    NODES,
    PLAN_KEY,
    Act,
    AskPeers,
    Commit,
    CommonKeys,
    Fence,
    Fetch,
    GrantLease,
    Judgement,
    KnownKeys,
    MemberClock,
    NodeKeys,
    NodeSettings,
    OwnState,
    PeerAnswer,
    PeerQuestion,
    PeerWord,
    Remembered,
    Stated,
    Tell,
    WarnPeers,
    node_key,
    part_name,
)
from faultrun.nodes.values.roster import Alarm, Leadership, PlanHeader, PlanPhase, Roster, Statement
from faultrun.nodes.values.transaction import (
    Absent,
    Compare,
    CreatedAt,
    NothingNewer,
    Put,
    StoredValue,
    Transaction,
    Unchanged,
)
from support.nodes.node_facts import fact_with, flat, known, node_fact
from support.stories.story import POLICY

TIMES = LeaseTimes.of(10.0, node_wait_s=60.0)
TWO_SEATS = Topology(nodes=(NodeSlots(node=NodeId(""), slots=1),) * 2)
RULES = Rules(topology=TWO_SEATS, policy=POLICY)


@dataclass(frozen=True, kw_only=True)
class Kept:
    value: StoredValue
    created: int
    changed: int
    lease: int


class EtcdInMemory:
    """One store for all nodes of a run: revisions, leases and guarded transactions, without time."""

    def __init__(self) -> None:
        self.revision = 1
        self.kept: dict[str, Kept] = {}
        self.leases = 0

    def grant(self) -> int:
        self.leases += 1
        return self.leases

    def drop(self, lease: int) -> None:
        """The lease has ended, and all that lived by it."""
        self._remove(lambda kept: kept.lease == lease)

    def commit(self, transaction: Transaction, lease: int) -> bool:
        if not all(self.holds(compare) for compare in transaction.compares):
            return False
        self.revision += 1
        for operation in transaction.then:
            if isinstance(operation, Put):
                before = self.kept.get(operation.key)
                self.kept[operation.key] = Kept(
                    value=operation.value,
                    created=before.created if before else self.revision,
                    changed=self.revision,
                    lease=lease if operation.leased else 0,
                )
            else:
                self.kept.pop(operation.key, None)
        return True

    def holds(self, compare: Compare) -> bool:
        match compare:
            case Absent(key=key):
                return key not in self.kept
            case Unchanged(key=key, changed=changed):
                return key in self.kept and self.kept[key].changed == changed
            case CreatedAt(key=key, created=created):
                return key in self.kept and self.kept[key].created == created
            case NothingNewer(key=folder, revision=revision):
                return all(
                    one.changed <= revision for key, one in self.kept.items() if key.startswith(folder)
                )
            case _:
                assert_never(compare)

    def common(self) -> CommonKeys:
        keys = CommonKeys(revision=self.revision)
        plan, coordinator = self.kept.get(PLAN_KEY), self.kept.get(COORDINATOR_KEY)
        if plan is not None and isinstance(plan.value, PlanHeader):
            keys = replace(keys, header=plan.value, header_changed=plan.changed)
        if coordinator is not None and isinstance(coordinator.value, Leadership):
            keys = replace(
                keys,
                coordinator=coordinator.value,
                token=coordinator.created,
                coordinator_changed=coordinator.changed,
            )
        alarms = (one.value for key, one in self.kept.items() if key.startswith(ALARMS))
        return replace(keys, alarms=tuple(alarm for alarm in alarms if isinstance(alarm, Alarm)))

    def nodes(self) -> NodeKeys:
        stated = tuple(self.stated(key) for key in self.kept if key.startswith(NODES))
        return NodeKeys(revision=self.revision, stated=tuple(one for one in stated if one is not None))

    def stated(self, key: str) -> Stated | None:
        kept = self.kept.get(key)
        if kept is None or not isinstance(kept.value, Statement):
            return None
        return Stated(statement=kept.value, created=kept.created, changed=kept.changed, lease=kept.lease)

    def parts(self) -> dict[str, Roster | Plan]:
        found = self.kept.items()
        return {part_name(key): one.value for key, one in found if isinstance(one.value, Roster | Plan)}

    def _remove(self, ended: Callable[[Kept], bool]) -> None:
        self.kept = {key: one for key, one in self.kept.items() if not ended(one)}
        self.revision += 1


class Member:
    """One node: its supervisor's word, its lease, what it heard. The store answers at once, or not at all."""

    def __init__(self, run: "Group", node: str, **terms: object) -> None:
        plain = NodeSettings(
            node=NodeId(node), peer_addr=f"{node}:1", times=TIMES, machine=f"metal of {node}"
        )
        self.run, self.terms = run, replace(plain, **terms)  # type: ignore[arg-type]
        self.fact = node_fact(
            node=NodeId(node),
            boot=BootId(f"{node}1"),
            at_s=0,
            incarnation=-1,
            status=NodeStatus.JOINED,
            look=0,
            addr=f"10.0.0.{node}",
        )
        self.said: dict[str, object] = {}
        self.lease: Lease | None = None
        self.raised: Alarm | None = None
        self.known = KnownKeys()
        self.remembered = Remembered()
        self.hears = True
        self.told: list[object] = []
        self.waits = self.spare = ""
        self.alive_until_s = self.frozen_s = 0.0

    def says(self, status: NodeStatus, incarnation: int | None = None, **more: object) -> None:
        at = self.fact.incarnation if incarnation is None else incarnation
        self.said |= flat(self.fact)
        self.fact = fact_with(self.fact, status, **{**known(status, self.said), "incarnation": at, **more})

    def reads(self) -> None:
        store = self.run.store
        own = store.stated(node_key(self.fact.node, self.fact.boot))
        nodes = store.nodes() if self.known.nodes is not None else None
        self.known = replace(self.known, common=store.common(), own=own, nodes=nodes, parts=store.parts())

    def judges(self) -> Judgement:
        if self.hears:
            self.reads()
            if self.lease is not None and not self.lease.dropped:
                self.lease = renewed(self.lease, self.run.now_s, self.run.now_s, TIMES)
        own = OwnState(fact=self.fact, lease=self.lease, raised=self.raised, frozen_s=self.frozen_s)
        clock = MemberClock(now_s=self.run.now_s, run_s=self.run.now_s - 100)
        judgement = judge(self.run.rules, self.terms, own, self.known, self.remembered, clock)
        self.remembered = judgement.remembered
        self.waits = "" if judgement.waits is None else judgement.waits.reason
        self.alive_until_s, self.spare = judgement.alive_until_s, judgement.spare
        if judgement.coordinates and self.known.nodes is None:
            self.known = replace(self.known, nodes=self.run.store.nodes())
        return judgement

    def performs(self, act: Act) -> None:
        match act:
            case GrantLease() if self.hears:
                now_s = self.run.now_s
                self.lease = granted(self.lease, self.run.store.grant(), now_s, now_s)
            case Commit(transaction=transaction) if self.hears and self.lease is not None:
                self.run.store.commit(transaction, self.lease.number)
            case Tell(event=event):
                self.told.append(event)
            case Fence():
                self.told.append(act)
                self.lease = None
            case AskPeers(question=question):
                answers = tuple(self.run.answers(self, question))
                self.known = replace(self.known, answers=answers)
                self.hears_of(*answers)
                for one in self.run.reached_by(self):
                    one.hears_of(question)
            case WarnPeers(alarm=alarm, members=members):
                for one in self.run.members:
                    if one.fact.node in {entry.node for entry in members}:
                        one.known = replace(one.known, warnings=(*one.known.warnings, alarm))

    def hears_of(self, *said: PeerQuestion | PeerAnswer) -> None:
        """Note how far these say that they are."""
        words = {(one.node, one.boot): one for one in self.known.words}
        for one in said:
            words[one.node, one.boot] = PeerWord(
                node=one.node,
                boot=one.boot,
                incarnation=one.incarnation,
                status=one.status,
                heard_at_s=self.run.now_s,
            )
        self.known = replace(self.known, words=tuple(words.values()))

    @property
    def header(self) -> PlanHeader | None:
        return None if self.known.common is None else self.known.common.header

    def was_told(self, kind: type) -> list[object]:
        return [event for event in self.told if isinstance(event, kind)]


class Group:
    """Nodes around one store; ``settles`` lets everybody act until nobody has anything to do."""

    def __init__(self, *nodes: str, rules: Rules = RULES, **terms: object) -> None:
        self.rules, self.store, self.now_s = rules, EtcdInMemory(), 1000.0
        self.members = [Member(self, node, **terms) for node in nodes]
        self.cut_off: list[Member] = []

    def __getitem__(self, node: str) -> Member:
        return next(one for one in self.members if one.fact.node == node)

    def stated(self, who: Member) -> tuple[NodeStatus, int] | None:
        """What the store holds of it: how far it is, and with which incarnation."""
        found = self.store.stated(node_key(who.fact.node, who.fact.boot))
        return None if found is None else (found.statement.fact.word, found.statement.fact.incarnation)

    def answers(self, who: Member, question: PeerQuestion) -> list[PeerAnswer]:
        given = [
            answer(question, one.fact, one.header, one.lease, TIMES, self.now_s)
            for one in self.reached_by(who)
        ]
        for one in self.reached_by(who):
            if not one.hears and one.lease is not None:
                one.lease = tried(one.lease, self.now_s)
        return [replace(one, asked_at_s=self.now_s) for one in given]

    def reached_by(self, who: Member) -> list[Member]:
        """Whom ``who`` can ask."""
        away = self.cut_off if who not in self.cut_off else self.members
        return [one for one in self.members if one is not who and one not in away and one.lease is not None]

    def settles(self) -> "Group":
        quiet = 0
        for _ in range(40):
            acts = [(one, act) for one in self.members for act in one.judges().acts]
            for one, act in acts:
                one.performs(act)
            lost = (GrantLease, Commit, Fetch)
            quiet = 0 if [act for one, act in acts if one.hears or not isinstance(act, lost)] else quiet + 1
            if quiet == 2:
                return self
        raise AssertionError(acts)

    def passes(self, seconds: float, step_s: float = 0.5) -> "Group":
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s = min(until_s, self.now_s + step_s)
            self.settles()
        return self

    def starts(self) -> "Group":
        """All nodes join, prepare and run incarnation 0."""
        return self.settles().prepares(0).runs(0)

    def prepares(self, incarnation: int) -> "Group":
        for one in self.members:
            if [event for event in one.was_told(PlanAdopted) if event.incarnation == incarnation]:  # type: ignore[attr-defined]
                one.says(NodeStatus.READY, incarnation, master_port=7)
        return self.settles()

    def runs(self, incarnation: int) -> "Group":
        for one in self.members:
            if [event for event in one.was_told(GoGiven) if event.incarnation == incarnation]:  # type: ignore[attr-defined]
                one.says(NodeStatus.RUNNING, incarnation)
        return self.settles()

    @property
    def phase(self) -> tuple[int, PlanPhase] | None:
        header = self.store.common().header
        return None if header is None else (header.incarnation, header.phase)

    def is_gone(self, node: str) -> None:
        """Its host is dead; the store drops its lease."""
        gone = self[node]
        self.members.remove(gone)
        assert gone.lease is not None
        self.store.drop(gone.lease.number)
