"""The store over which ranks form their next process group: what torch asks of it ends with the group."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from faultrun.model.observed.rendezvous_store import TCP
from faultrun.sdk.stay.file_store import RendezvousFile
from faultrun.sdk.stay.next_group import Join
from faultrun.sdk.stay.tcp_store import RendezvousClient

_GONE = "a rank of the process group is gone before it was formed"
_ASK_S = 0.2
"""How long a question waits at the store over nodes; in between it is seen whether the group is over."""


class GroupBroken(RuntimeError):
    """The group that is being formed has lost a rank already. Says "process group", as torch's errors do."""


class PeerLost(ConnectionError):
    """The gradients of this step were not averaged, because a rank is gone."""


def open_store(join: Join, within_s: float, is_over: Callable[[], bool]) -> "_Store":
    """The one of this incarnation. RuntimeError: it cannot be reached."""
    return _Store(_opened(join, within_s), join.timeout_s, is_over)


def _opened(join: Join, within_s: float) -> RendezvousFile | RendezvousClient:
    try:
        if not join.store.startswith(TCP):
            return RendezvousFile(join.store)
        return RendezvousClient(join.store.removeprefix(TCP), join.secret, min(within_s, join.timeout_s))
    except OSError as error:
        raise GroupBroken(f"the ranks' meeting place at {join.store} cannot be reached: {error}") from error


class _Store(dist.Store):  # type: ignore[misc]  # torch has no types here
    """``inner`` whose waits end at once when the group that is formed over it is over.

    torch waits for keys for as long as a collective may take; a rank that died will never write its own.
    """

    def __init__(self, inner: Any, timeout_s: float, is_over: Callable[[], bool]) -> None:
        super().__init__()
        self._inner, self._timeout_s, self._is_over = inner, timeout_s, is_over

    def meet(self, rank: int, ranks: Sequence[int]) -> None:
        """Return once these ranks are here, so that connecting takes milliseconds."""
        self.set(f"here/{rank}", b"1")
        self.wait([f"here/{one}" for one in ranks])

    def set(self, key: str, value: Any) -> None:
        self._do(lambda: self._inner.set(key, _bytes(value)))

    def get(self, key: str) -> Any:
        return self._wait_for([key], self._timeout_s)[0]

    def add(self, key: str, amount: int) -> Any:
        if self._is_over():  # torch's barrier over a store counts again whenever a wait has failed
            raise GroupBroken(_GONE)
        return self._do(lambda: self._inner.add(key, amount))

    def check(self, keys: Sequence[str]) -> Any:
        return self._do(lambda: self._inner.get(keys, 0.0)) is not None

    def compare_set(self, key: str, expected: Any, desired: Any) -> Any:
        return self._do(lambda: self._inner.swap(key, _bytes(expected), _bytes(desired)))

    def delete_key(self, key: str) -> Any:
        return self._do(lambda: self._inner.drop(key))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """GroupBroken when it is over, or they were not written in the longer of both times."""
        longest = timedelta() if timeout is None else timeout
        self._wait_for(keys, max(self._timeout_s, longest.total_seconds()))

    def _wait_for(self, keys: Sequence[str], limit_s: float) -> list[bytes]:
        until_s = time.monotonic() + limit_s
        while True:
            if (values := self._do(lambda: self._inner.get(keys, _ASK_S))) is not None:
                return list(values)
            if self._is_over():
                raise GroupBroken(_GONE)
            if time.monotonic() > until_s:
                raise GroupBroken(f"not all ranks have come to the process group in {limit_s:g} s")

    @staticmethod
    def _do(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except OSError as error:
            raise GroupBroken(f"the ranks' meeting place is gone: {error}") from error


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
