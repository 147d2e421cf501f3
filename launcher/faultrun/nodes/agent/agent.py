"""The member process: one loop that hears, has ``nodes.protocol.judge`` judge, and acts. It forks nothing.

It hears its supervisor's orders, the watched keys, the lease and other nodes; whatever waits is a
task of a thread. Its answers to the supervisor are lines (``pipe_protocol``).
"""

import math
import os
import selectors
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from faultrun.errors import FaultrunError, assert_never
from faultrun.journal.codec import decode, encode, get_ready
from faultrun.model.actions import RaiseAlarm
from faultrun.model.events import NodesEvent
from faultrun.model.observed.agreement import MembershipLost
from faultrun.model.observed.hang import NodeSpoke
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.topology import BootId
from faultrun.nodes.agent import pipe_protocol as pipe
from faultrun.nodes.agent.agreement import MemberSetting
from faultrun.nodes.agent.announcements import Announcements
from faultrun.nodes.agent.own_lease import OwnLease
from faultrun.nodes.agent.peer_messages import PeerMessages
from faultrun.nodes.agent.retry_times import Retries
from faultrun.nodes.agent.run_keys import VALUES, RunKeys
from faultrun.nodes.agent.thread_tasks import ThreadTasks
from faultrun.nodes.etcd.answers import EtcdError
from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.etcd.endpoints import in_order_of
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.prefix_watch import PrefixWatch
from faultrun.nodes.etcd.store import PrefixState
from faultrun.nodes.protocol.judge import judge
from faultrun.nodes.values import membership
from faultrun.nodes.values.roster import Alarm, PlanHeader, PlanPhase, RosterEntry
from faultrun.nodes.values.transaction import Transaction
from faultrun.workers.forked_helper import Orders
from faultrun.workers.sweep import sweep

_STANDARD_STREAMS, _KEPT_PARTS = 3, 8
_SOON_S, _SWEEP_S, _LEAVE_WITHIN_S = 0.02, 1.0, 1.5
_WRITTEN = object()


def take_part(setting: MemberSetting, orders: Orders, words: int) -> None:
    """Be the member process, until the supervisor leaves or is gone; what goes wrong is told."""
    for _ in range(_STANDARD_STREAMS):
        os.open(os.devnull, os.O_RDWR)  # what a library writes to its standard error must meet no socket
    selector = selectors.DefaultSelector()
    told = pipe.Words(words, selector)
    try:
        access = replace(setting.etcd, endpoints=in_order_of(setting.etcd, setting.terms.node))
        MemberProcess(setting, Gateway(access), orders, told, selector).run()
    except FaultrunError as error:
        told.write({pipe.SAYS: str(error)})
    except BaseException:
        told.write({pipe.SAYS: traceback.format_exc()})
        raise


class MemberProcess:
    """In the child: ``run`` returns when the supervisor leaves, or is gone."""

    def __init__(
        self,
        setting: MemberSetting,
        gateway: Gateway,
        orders: Orders,
        words: pipe.Words,
        selector: selectors.BaseSelector,
    ) -> None:
        self._setting, self._gateway, self._orders = setting, gateway, orders
        self._keys = RunKeys(gateway, setting.run_id)
        self._selector = selector
        self._errands = ThreadTasks()
        self._words = words
        self._lease = OwnLease(gateway, setting, self._errands, self._troubled, self._keys.same_store)
        own, try_now = self._own_state, self._lease.try_now
        self._peers = PeerMessages(setting, selector, own, self._header, self._heard_of_ranks, try_now)
        self._terms = replace(setting.terms, peer_addr=self._peers.addr)
        self._over = self._quiet = False
        self._looked_for = -1
        self._fact: NodeFact | None = None
        self._raised: Alarm | None = None
        self._remembered = membership.Remembered()
        self._watches: dict[str, PrefixWatch] = {}
        self._parts: dict[str, Any] = {}
        self._retries = Retries()
        self._judge_at_s, self._looked_at_s, self._judged_revision = 0.0, 0.0, 0
        elastic, nodes = setting.rules.elastic, len(setting.rules.topology.nodes)
        least = 0 if elastic is None or elastic.keeps_size(nodes) else elastic.min_nodes
        self._aloud = Announcements(setting.run_id, setting.terms.times.node_wait_s, words, least)

    def run(self) -> None:
        """Take part until the supervisor leaves or is gone; then leave the run at once."""
        self._selector.register(self._orders.bell, selectors.EVENT_READ, self._ordered)
        self._selector.register(self._errands.fd, selectors.EVENT_READ, self._brought)
        self._watch("all/")
        get_ready(NodeFact, RaiseAlarm, *VALUES, NodesEvent)
        while not self._over:
            ready, self._quiet = self._selector.select(self._patience_s()), False
            for key, _ in ready:
                key.data()
            self._peers.cut_late()
            if self._quiet and len(ready) == 1:
                continue
            self._looked_at_s, own = boot_now(), self._own_state()
            if own is not None and not self._over:
                self._judge(own)
        self._leave()

    # what is heard

    def _ordered(self) -> None:
        orders, more = self._orders.received()
        for order in orders:
            if pipe.FACT in order:
                self._stated(pipe.dated(decode(order[pipe.FACT], NodeFact), self._setting.clock.now()))
            if pipe.ALARM in order:
                said: RaiseAlarm = decode(order[pipe.ALARM], RaiseAlarm)
                life, node, stays = said.incarnation, self._terms.node, said.stays
                self._raised = Alarm(incarnation=life, node=node, why=said.why, stop=said.stop, stays=stays)
            if pipe.RANKS in order:
                works, members = order[pipe.WHY], self._known().members
                spoken = partial(self._peers.tell_of_ranks, members, order[pipe.RANKS], works)
                self._errands.send(f"ranks {order[pipe.WHY]}", spoken)
            self._over |= pipe.LEAVE in order
        if not more:
            _, outlived = sweep(frozenset({self._setting.boot}), patience_s=_SWEEP_S)
            if outlived:
                self._lease.drop()  # revoked, it would give their places away while they live
            self._over = True

    def _stated(self, fact: NodeFact) -> None:
        # Who serves etcd takes it along when it leaves.
        fact = replace(fact, unfit=fact.unfit and not self._setting.serves)
        before, self._fact, self._peers.boot = self._fact, fact, fact.boot
        if before is not None and before.boot != fact.boot:
            self._unwatch(membership.node_key(before.node, before.boot))
        self._watch(membership.node_key(fact.node, fact.boot))

    def _heard_of_ranks(self, word: NodeSpoke) -> None:
        self._words.write({pipe.TELLS: encode(replace(word, at_s=self._setting.clock.now()))})

    def _brought(self) -> None:
        """Quiet: all that is new was written by us, and is judged when a watch shows it."""
        self._quiet = {*map(id, self._errands.answered())} == {id(_WRITTEN)}

    def _troubled(self, error: Exception) -> None:
        """From any thread."""
        self._errands.bring(lambda: self._say_trouble(error))

    def _say_trouble(self, error: Exception) -> None:
        if not isinstance(error, EtcdError):
            raise error
        lease = self._lease.present
        self._aloud.trouble(str(error), -math.inf if lease is None else lease.sent_at_s)

    # what is judged

    def _judge(self, own: membership.OwnState) -> None:
        clock = membership.MemberClock(now_s=boot_now(), run_s=self._setting.clock.now())
        self._judged_revision = self._seen_revision()  # a watch may bring a write of ours meanwhile
        setting, known = self._setting, self._known()
        judged = judge(setting.rules, self._terms, own, known, self._remembered, clock)
        self._remembered = judged.remembered
        self._judge_at_s = judged.judge_at_s
        if self._lease.let_live(judged.alive_until_s):
            self._words.write({pipe.UNTIL: judged.alive_until_s})
        for act in judged.acts:
            self._perform(act)
        if judged.coordinates:
            self._watch("node/")
        else:
            self._unwatch("node/")
        self._aloud.tell(judged)
        header, members = self._header(), known.members
        if header is None or header.phase is not PlanPhase.GO or header.incarnation <= self._looked_for:
            return
        if any(one.boot == self._peers.boot for one in members):
            first, self._looked_for = self._looked_for < 0, header.incarnation
            self._errands.send("look", partial(self._looks_for, header, members, members if first else ()))

    def _looks_for(
        self, header: PlanHeader, members: Sequence[RosterEntry], new: Sequence[RosterEntry]
    ) -> Callable[[], object]:
        for one in self._peers.look_for(header, members[0].node, new):
            self._errands.bring(partial(self._words.write, {pipe.SAYS: one}))
        return lambda: None

    def _own_state(self) -> membership.OwnState | None:
        if self._fact is None:
            return None
        present, behind_s = self._lease.present, self._lease.behind_s
        return membership.OwnState(fact=self._fact, lease=present, raised=self._raised, frozen_s=behind_s)

    def _header(self) -> PlanHeader | None:
        common = self._keys.common(self._state_of("all/"))
        return None if common is None else common.header

    def _known(self) -> membership.KnownKeys:
        common = self._state_of("all/")
        own = self._state_of(membership.node_key(self._terms.node, self._peers.boot))
        return membership.KnownKeys(
            common=self._keys.common(common),
            own=None if own is None else self._keys.own(own),
            nodes=self._keys.nodes(self._state_of("node/")),
            parts={**self._parts, **self._keys.small_parts(common)},
            answers=self._peers.answers,
            warnings=self._peers.warnings,
            words=self._peers.words,
        )

    def _seen_revision(self) -> int:
        return max((one.revision for one in map(self._state_of, self._watches) if one is not None), default=0)

    def _state_of(self, folder: str) -> PrefixState | None:
        watch = self._watches.get(folder)
        return None if watch is None else watch.state()

    # what is done

    def _perform(self, act: membership.Act) -> None:
        match act:
            case membership.Tell(event=event):
                self._words.write({pipe.TELLS: encode(event)})
            case membership.Fence(incarnation=incarnation, why=why):
                self._fence(incarnation, why)
            case membership.Commit(transaction=transaction):
                self._commit(transaction)
            case membership.GrantLease():
                self._errand("grant", self._lease.grant)
            case membership.Fetch(keys=keys):
                for key in keys:
                    self._errand(f"fetch {key}", partial(self._fetched, key))
            case membership.AskPeers():
                self._errand("ask", partial(self._peers.ask, act))
            case membership.WarnPeers():
                name = f"warn {act.alarm.incarnation} {act.alarm.stays}"
                self._errand(name, partial(self._peers.warn, act))
            case _:
                assert_never(act)

    def _fence(self, incarnation: int, why: str) -> None:
        """The workers die here and now, whatever the supervisor does; it hears why before they end."""
        boot = self._peers.boot = BootId(os.urandom(8).hex())
        now_s, over_s = self._setting.clock.now(), boot_now() - self._setting.deadline.at_s
        known = self._keys.common(self._state_of("all/"))
        since_s, revision = now_s - max(0.0, over_s), 0 if known is None else known.revision
        lost = MembershipLost(
            at_s=now_s, incarnation=incarnation, why=why, boot=boot, since_s=since_s, revision=revision
        )
        self._words.write({pipe.TELLS: encode(lost)})
        self._setting.deadline.killed_at_s = boot_now()
        sweep(frozenset({self._setting.boot}), patience_s=_SWEEP_S)
        self._lease.drop()

    def _commit(self, transaction: Transaction) -> None:
        """Once at a time for each key, and again only when what was written would have been seen."""
        keys = [operation.key for operation in transaction.then]
        # The parts of a plan have a new name each time that it is made: it is one write all the same.
        name = f"write {membership.PLAN_KEY if membership.PLAN_KEY in keys else keys[0]}"

        def work(lease: int = self._lease.number) -> Callable[[], object]:
            outcome = self._keys.commit(transaction, lease)
            return lambda: _WRITTEN if self._retries.written(name, outcome, self._seen_revision()) else None

        self._errand(name, work)

    def _errand(self, name: str, work: Callable[[], Callable[[], object]]) -> None:
        """In a thread, unless it is under way, or has just been done and nothing was seen since."""
        if not self._retries.is_due(name, self._judged_revision):
            return

        def tried() -> Callable[[], object]:
            try:
                return work()
            except EtcdError as error:
                trouble = error

            def failed() -> None:
                self._retries.failed(name)
                self._say_trouble(trouble)

            return failed

        self._errands.send(name, tried)

    def _fetched(self, key: str) -> Callable[[], object]:
        part = self._keys.fetch(key)

        def keep() -> None:
            if part is None:
                self._retries.failed(f"fetch {key}")
                return
            newest = list(self._parts.items())[-_KEPT_PARTS:]
            self._parts = {**dict(newest), key: part}

        return keep

    def _watch(self, folder: str) -> None:
        if folder in self._watches:
            return
        look = partial(self._errands.bring, lambda: None)  # from the watch's thread: the loop wakes up
        watch = self._watches[folder] = self._keys.watch(folder, look, self._troubled)
        watch.start()

    def _unwatch(self, folder: str) -> None:
        if (watch := self._watches.pop(folder, None)) is not None:
            self._errands.send(f"end {folder}", partial(_ended, watch))

    def _patience_s(self) -> float | None:
        """Until the next thing that happens by itself."""
        now_s, moments = boot_now(), (self._judge_at_s, self._aloud.at_s, *self._retries.moments())
        waits = [max(0.0, at_s - now_s) for at_s in moments if self._looked_at_s < at_s < math.inf]
        late_s = self._peers.cut_late()
        return min([*waits, *([] if late_s is None else [late_s])], default=None)

    def _leave(self) -> None:
        """No node need wait for the end of our lease: our workers are gone."""
        self._peers.close()
        self._lease.revoke(_LEAVE_WITHIN_S)
        until_s = boot_now() + (self._terms.times.ttl_s if self._setting.serves else 0.0)
        while boot_now() < until_s and self._keys.others_are_here(self._terms.node):
            time.sleep(_SOON_S)  # in a process that has nothing else to do any more


def _ended(watch: PrefixWatch) -> Callable[[], object]:
    watch.close()  # which waits for the request that is under way
    return lambda: None
