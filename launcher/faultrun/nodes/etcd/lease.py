"""A lease: keys that end with the node that wrote them, and a clock that is never too late.

Its time runs from when the last answered keepalive was *sent*: etcd counts from a moment after
that, so a node that has stopped ``ttl_s`` after it has stopped before etcd drops the keys.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from faultrun.nodes.etcd.answers import EtcdRefused, EtcdReplaced
from faultrun.nodes.etcd.gateway import WITHIN_S, Gateway
from faultrun.nodes.etcd.restarting_thread import RestartingThread, Troubled

_TURNS_A_LEASE = 4
_NOT_YET_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """etcd keeps the lease for at least ``ttl_s`` from ``sent_at_s``, a time of ``clock.boot_now``."""

    lease: int
    ttl_s: float
    sent_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGone:
    """etcd knows no such lease any more, and has dropped its keys."""

    lease: int


def grant(gateway: Gateway, ttl_s: float, *, within_s: float = WITHIN_S) -> Renewal:
    """Take a lease. etcd counts in whole seconds and gives no less than 2 by default: see ``ttl_s``.

    A grant whose answer is lost leaves a lease that is not renewed, and that ends by itself.
    """
    answered = gateway.ask("lease/grant", {"TTL": str(math.ceil(ttl_s))}, within_s=within_s)
    given = answered.result
    return Renewal(lease=int(given["ID"]), ttl_s=float(given["TTL"]), sent_at_s=answered.sent_at_s)


def renew(gateway: Gateway, lease: int, *, within_s: float = WITHIN_S) -> Renewal | LeaseGone:
    """Send a keepalive; EtcdSilent if no answer comes in time."""
    answered = gateway.ask("lease/keepalive", {"ID": str(lease)}, within_s=within_s)
    if (ttl_s := float(answered.result.get("TTL", 0))) <= 0:
        return LeaseGone(lease=lease)
    return Renewal(lease=lease, ttl_s=ttl_s, sent_at_s=answered.sent_at_s)


def revoke(gateway: Gateway, lease: int, *, within_s: float = WITHIN_S) -> None:
    """End the lease and its keys now; nothing if it has ended."""
    try:
        gateway.ask("lease/revoke", {"ID": str(lease)}, within_s=within_s)
    except EtcdRefused as error:
        if not error.failure.lease_gone:
            raise


class LeaseKeeper:
    """Renews one lease, four times in its time, from a thread of its own.

    ``may_renew`` is asked each time: a lease says that its node is well. ``tell`` and ``troubled`` are
    called from the thread. Nothing is renewed after LeaseGone. ``same_store`` raises EtcdReplaced where etcd
    has lost what it knew: that it does not know this lease then says nothing of the node, nor is it told.
    """

    def __init__(
        self,
        gateway: Gateway,
        granted: Renewal,
        *,
        may_renew: Callable[[], bool],
        tell: Callable[[Renewal | LeaseGone], object],
        troubled: Troubled,
        same_store: Callable[[], object] = lambda: None,
    ) -> None:
        self._gateway, self._same_store, self._troubled = gateway, same_store, troubled
        self._granted, self._may_renew, self._tell = granted, may_renew, tell
        self._gone = False
        self._thread = RestartingThread(f"lease {granted.lease}", self._turn, troubled)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def close(self) -> None:
        """Stop renewing; the lease lives on until its end, or until it is revoked."""
        self._thread.close()

    def _turn(self) -> float:
        period_s = self._granted.ttl_s / _TURNS_A_LEASE
        if self._gone or not self._may_renew():
            return min(_NOT_YET_S, period_s)
        news = renew(self._gateway, self._granted.lease, within_s=period_s)
        if isinstance(news, LeaseGone):
            try:
                self._same_store()
            except EtcdReplaced as error:
                self._troubled(error)
                return period_s
        self._gone = isinstance(news, LeaseGone)
        self._tell(news)
        return period_s
