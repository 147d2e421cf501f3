"""A run's keys in etcd, as the values that nodes agree by: read, watched, and written in transactions."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from faultrun.journal.codec import CodecError, decode, encode
from faultrun.model.plan import Plan
from faultrun.model.topology import NodeId, RunId
from faultrun.nodes.etcd import store
from faultrun.nodes.etcd.answers import EtcdError
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.prefix_watch import PrefixWatch
from faultrun.nodes.etcd.store import KeyValue, PrefixState
from faultrun.nodes.etcd.transactions import in_etcds_terms
from faultrun.nodes.values import membership
from faultrun.nodes.values.membership import CommonKeys, KnownKeys, NodeKeys, Stated
from faultrun.nodes.values.roster import Alarm, Leadership, PlanHeader, Roster, Statement
from faultrun.nodes.values.transaction import Transaction

ROOT = "/faultrun"
VALUES = (Alarm, Leadership, Plan, PlanHeader, Roster, Statement)
"""What the keys hold."""


def known_runs(gateway: Gateway, most: int) -> list[str]:
    """Runs that have keys, at most so many. EtcdError: etcd does not answer, or not to this user."""
    return store.folders(gateway, f"{ROOT}/", most)


class RunKeys:
    """The keys of one run. Methods that read or write wait for the store; ask from a thread that may."""

    def __init__(self, gateway: Gateway, run_id: RunId) -> None:
        self._gateway = gateway
        self._root = f"{ROOT}/{run_id}/"
        self._common: tuple[PrefixState | None, CommonKeys | None] = (None, None)
        self._own: tuple[PrefixState | None, Stated | None] = (None, None)
        self._nodes: tuple[PrefixState | None, NodeKeys | None] = (None, None)
        self._read_to = 0
        self._statements: dict[str, Stated] = {}
        self._small: dict[str, Plan] = {}

    def same_store(self) -> None:
        """EtcdReplaced where it has lost what was read of it. EtcdError: no answer."""
        seen = self._read_to  # by now: while etcd answers, a watch may read what is newer than the answer
        store.check_not_behind(self._gateway, store.newest_revision(self._gateway, self._root), seen)

    def watch(
        self, folder: str, changed: Callable[[], object], troubled: Callable[[Exception], object]
    ) -> PrefixWatch:
        """Keep a copy of what is below ``folder``; not started."""
        return PrefixWatch(self._gateway, self._root + folder, changed=changed, troubled=troubled)

    def common(self, state: PrefixState | None) -> CommonKeys | None:
        """What all nodes watch; None: not read yet."""
        if state is None or self._common[0] is state:
            return self._common[1] if state is not None else None
        self._read_to = max(self._read_to, state.revision)
        header = state.keys.get(self._root + membership.PLAN_KEY)
        leader = state.keys.get(self._root + membership.COORDINATOR_KEY)
        alarms = self._root + membership.ALARMS
        found = [_value(kv, Alarm) for key, kv in sorted(state.keys.items()) if key.startswith(alarms)]
        common = CommonKeys(
            revision=state.revision,
            header=None if header is None else _value(header, PlanHeader),
            header_changed=0 if header is None else header.changed,
            coordinator=None if leader is None else _value(leader, Leadership),
            token=0 if leader is None else leader.created,
            coordinator_changed=0 if leader is None else leader.changed,
            alarms=tuple(alarm for alarm in found if alarm is not None),
        )
        self._common = state, common
        return common

    def small_parts(self, state: PrefixState | None) -> dict[str, Plan]:
        """Bodies that lie where all nodes watch, by ``part_name``."""
        if state is None:
            return {}
        folder = self._root + membership.SMALL_BODIES
        there = {key: kv for key, kv in state.keys.items() if key.startswith(folder)}
        if there.keys() != self._small.keys():  # what a name stands for never changes
            read = {key: self._small.get(key) or _value(kv, Plan) for key, kv in there.items()}
            self._small = {key: body for key, body in read.items() if body is not None}
        return {membership.part_name(key[len(self._root) :]): body for key, body in self._small.items()}

    def own(self, state: PrefixState) -> Stated | None:
        """What this node states, from a watch of that key alone."""
        if self._own[0] is not state:
            self._own = state, next((_stated(kv) for kv in state.keys.values()), None)
        return self._own[1]

    def nodes(self, state: PrefixState | None) -> NodeKeys | None:
        """What every node states, for the coordinator; None: not read yet."""
        if state is None or self._nodes[0] is state:
            return None if state is None else self._nodes[1]
        statements = {}
        for key, kv in sorted(state.keys.items()):
            before = self._statements.get(key)
            same = before is not None and (before.created, before.changed) == (kv.created, kv.changed)
            statement = before if same else _stated(kv)
            if statement is not None:
                statements[key] = statement
        self._statements = statements
        nodes = NodeKeys(revision=state.revision, stated=tuple(statements.values()))
        self._nodes = state, nodes
        return nodes

    def others_are_here(self, node: NodeId) -> bool:
        """Whether another node is in the run still; not if the store does not answer any more."""
        with suppress(EtcdError):
            state = store.read(self._gateway, self._root + membership.NODES)
            return any(not key.startswith(f"{self._root}{membership.NODES}{node}/") for key in state.keys)
        return False

    def everything(self) -> KnownKeys:
        """The whole run at one moment, for a reader that takes no part in it. EtcdError: no answer."""
        state = store.read(self._gateway, self._root)
        parts, stated = {}, {}
        for key, kv in state.keys.items():
            if (name := key[len(self._root) :]).startswith(membership.NODES):
                stated[key] = kv
            elif name.startswith((membership.ROSTERS, membership.BODIES, membership.SMALL_BODIES)):
                part = _value(kv, membership.value_type(name))
                parts.update({} if part is None else {membership.part_name(name): part})
        nodes = self.nodes(PrefixState(keys=stated, revision=state.revision))
        return KnownKeys(common=self.common(state), nodes=nodes, parts=parts)

    def fetch(self, key: str) -> Roster | Plan | None:
        """One of the plan's large parts, None if it is not there. EtcdError: the store does not answer."""
        if (kv := store.read(self._gateway, self._root + key).keys.get(self._root + key)) is None:
            return None
        part: Roster | Plan | None = _value(kv, membership.value_type(key))
        return part

    def commit(self, transaction: Transaction, lease: int) -> store.WriteOutcome:
        """Try it. EtcdError: nothing was written."""
        text = lambda value: json.dumps(encode(value), separators=(",", ":"))  # noqa: E731
        write = in_etcds_terms(transaction, root=self._root, lease=lease, encode=text)
        return store.transact(self._gateway, write)


def _stated(kv: KeyValue) -> Stated | None:
    """A statement as it was read; None for what is none."""
    if (statement := _value(kv, Statement)) is None:
        return None
    return Stated(statement=statement, created=kv.created, changed=kv.changed, lease=kv.lease)


def _value(kv: KeyValue, as_type: Any) -> Any:
    """None for what another version, or no faultrun, has written."""
    with suppress(ValueError, CodecError):
        return decode(json.loads(kv.value), as_type)
    return None
