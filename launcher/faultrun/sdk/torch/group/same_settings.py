"""Whether all ranks can rejoin and were asked for the same copies, told over the store of their group.

Not in a collective: a rank that cannot, was asked for none, or for another interval, would not come to it,
and the others would wait in it for as long as a collective may take.
"""

import contextlib
from typing import Any

import torch.distributed as dist

from faultrun.sdk.session import Session


def group_store() -> Any | None:
    """The store over which the ranks have met; None without one."""
    with contextlib.suppress(AttributeError, RuntimeError, ValueError):
        return dist.distributed_c10d._get_default_store()
    return None


class SameSettings:
    """Compares this rank's settings with the others' in its first group; without a ``store`` it does not."""

    def __init__(self, store: Any | None, session: Session) -> None:
        self._store = store
        self._rank = session.rank
        self._key = f"faultrun/{session.incarnation}/snapshot_every"
        self._refuses = f"faultrun/{session.incarnation}/cannot_rejoin"

    def tell(self, mine: str) -> None:
        """Before the first step: who says it first is whom the others are compared with.

        A store that cannot compare tells nothing.
        """
        if self._store is None:
            return
        with contextlib.suppress(RuntimeError, NotImplementedError):
            first = bytes(self._store.compare_set(self._key, "", f"{mine} on rank {self._rank}")).decode()
            if first.partition(" on rank ")[0] != mine:
                self._store.set(self._differs, f"{first}, and {mine} on rank {self._rank}")

    def refuse(self, why: str) -> None:
        """Before the first step: this rank cannot rejoin, so no rank is to wait for it."""
        if self._store is not None:
            with contextlib.suppress(RuntimeError):
                self._store.set(self._refuses, f"rank {self._rank} cannot: {why}")

    def against(self) -> str:
        """After the first step, to which all must have come, once: why no rank can rejoin; "" if all can."""
        store, self._store = self._store, None
        with contextlib.suppress(RuntimeError, NotImplementedError):
            if store is not None and store.check([self._differs]):
                told = bytes(store.get(self._differs)).decode()
                return f"snapshot_every is {told}: all ranks must be given the same"
            if store is not None and store.check([self._refuses]):
                return bytes(store.get(self._refuses)).decode()
        return ""

    @property
    def _differs(self) -> str:
        return f"{self._key}/differs"
