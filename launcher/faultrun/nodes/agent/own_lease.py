"""This node's lease, as its member process keeps it: renewed only while the supervisor is well.

The supervisor hands each deadline on to the deadman, in a page that all three processes share. A deadline
that was told and does not appear there shows that the supervisor stands still.
"""

from collections.abc import Callable
from dataclasses import replace

from faultrun.nodes.agent.agreement import MemberSetting
from faultrun.nodes.agent.thread_tasks import ThreadTasks
from faultrun.nodes.etcd import lease
from faultrun.nodes.etcd.answers import EtcdError
from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.lease import LeaseGone, LeaseKeeper, Renewal
from faultrun.nodes.etcd.restarting_thread import Troubled
from faultrun.nodes.protocol import lease_deadline
from faultrun.nodes.values.lease import Lease

_HANDED_ON_WITHIN, _ANSWERS_WITHIN = 1 / 4, 1 / 10
"""Share of a lease; a supervisor that is well takes milliseconds, and so does an etcd that is."""


class OwnLease:
    """Every method runs in the member's loop, but what ``LeaseKeeper`` calls.

    ``same_store`` raises EtcdReplaced where etcd has lost what this node had read; from any thread that may
    wait.
    """

    def __init__(
        self,
        gateway: Gateway,
        setting: MemberSetting,
        errands: ThreadTasks,
        troubled: Troubled,
        same_store: Callable[[], object],
    ) -> None:
        self._same_store = same_store
        self.present: Lease | None = None
        self._gateway = gateway
        self._times = setting.terms.times
        self._deadline = setting.deadline
        self._errands, self._troubled = errands, troubled
        self._keeper: LeaseKeeper | None = None
        self._until_s = self._behind_since_s = 0.0

    @property
    def number(self) -> int:
        """The number that etcd gave the lease; 0 while there is none."""
        return 0 if self.present is None else self.present.number

    def let_live(self, until_s: float) -> bool:
        """Note until when workers may live; whether that is news for the supervisor."""
        news = until_s != self._until_s
        if news:
            if self._is_handed_on:
                self._behind_since_s = boot_now()
            self._until_s = until_s
        return news

    @property
    def behind_s(self) -> float:
        """For how long the supervisor has not handed on what it was told; 0 where it has."""
        return 0.0 if self._is_handed_on else boot_now() - self._behind_since_s

    @property
    def _is_handed_on(self) -> bool:
        return self._deadline.at_s == self._until_s

    def grant(self) -> Callable[[], object]:
        """A task of a thread: take a new lease, and keep it from then on. EtcdError if none is granted."""
        self._same_store()
        renewal = lease.grant(self._gateway, self._times.ttl_s)
        return lambda: self._keep(renewal)

    def try_now(self) -> None:
        """Ask etcd beside the thread that renews: a peer does not hear it, and waits for our word."""
        number, sent_at_s = self.number, boot_now()
        if lease_deadline.is_deaf(self.present, self._times, sent_at_s) or not self._supervisor_is_well():
            return

        def ask() -> Callable[[], object]:
            try:
                news = lease.renew(self._gateway, number, within_s=self._times.ttl_s * _ANSWERS_WITHIN)
            except EtcdError:
                return lambda: self._untold(number, sent_at_s)
            return lambda: self._renewed(number, news) if isinstance(news, Renewal) else None

        self._errands.send("try", ask)

    def drop(self) -> None:
        """Renew no longer; the lease ends by itself."""
        self.present = None
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            self._errands.send(f"end {keeper}", lambda: _ended(keeper))

    def revoke(self, within_s: float) -> None:
        """End the lease now, as far as etcd answers in time."""
        ends = self.present
        self.drop()
        if ends is not None and not ends.dropped:
            try:
                lease.revoke(self._gateway, ends.number, within_s=within_s)
            except EtcdError:
                return  # it ends by itself

    def _keep(self, renewal: Renewal) -> None:
        before = self.present
        self.drop()
        number = renewal.lease
        self.present = lease_deadline.granted(before, number, renewal.sent_at_s, boot_now())
        self._keeper = LeaseKeeper(
            self._gateway,
            renewal,
            may_renew=self._supervisor_is_well,
            tell=lambda news: self._errands.bring(lambda: self._renewed(number, news)),
            troubled=self._troubled,
            same_store=self._same_store,
        )
        self._keeper.start()

    def _supervisor_is_well(self) -> bool:
        return self.behind_s < self._times.ttl_s * _HANDED_ON_WITHIN

    def _renewed(self, number: int, news: Renewal | LeaseGone) -> None:
        if (before := self.present) is None or before.number != number:
            return
        match news:
            case LeaseGone():
                self.present = replace(before, dropped=True)
            case Renewal(sent_at_s=sent_at_s):
                self.present = lease_deadline.renewed(before, sent_at_s, boot_now(), self._times)

    def _untold(self, number: int, sent_at_s: float) -> None:
        if self.present is not None and self.present.number == number:
            self.present = lease_deadline.tried(self.present, sent_at_s)


def _ended(keeper: LeaseKeeper) -> Callable[[], object]:
    keeper.close()  # which waits for the request that is under way
    return lambda: None
