"""A rank's part in having its copies kept by the next node: where that is, and whether they have arrived.

The copies themselves are sent by a program beside the supervisor (``sdk.snapshots.exchange``). Nodes find
each other over the store of the ranks' process group, which every incarnation has anew.
"""

import contextlib
import time

from faultrun.sdk.snapshots.buffer import Snapshots
from faultrun.sdk.stay.next_group import CopiesAt
from faultrun.sdk.torch.group.same_settings import group_store
from faultrun.sdk.worker.training_stages import told
from faultrun.sdk.worker.worker import Worker

_PATIENCE_S, _FIRST_S, _LOOK_S = 60.0, 10.0, 0.0005


class CopiesArriving:
    """Finds the next node for a rank's copies, and waits until they have arrived. Main thread."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._told = self._found = self._arriving = self._gave_up = -1

    def look(self) -> None:
        """After a step: the rank that was asked to tells where its node listens, and asks for the next."""
        here, now = self._here, self._worker.session.incarnation
        if here is None or not here.asked or self._found == now or (store := group_store()) is None:
            return
        with contextlib.suppress(RuntimeError, NotImplementedError):  # a rank is gone, or it is no such store
            if self._told != now:
                store.set(f"faultrun/{now}/copies/{here.own}", here.at)
                self._told = now
            key = f"faultrun/{now}/copies/{here.next}"
            if store.check([key]):
                at = bytes(store.get(key)).decode(errors="replace")
                self._worker.say("next_node", incarnation=now, at=at)
                self._found = now

    def wait(self, copies: Snapshots) -> float:
        """Until the next node has our newest copy, if it had any in this incarnation; how long that took.

        Every rank does so before the step after which the older copy is written over: so there is always
        a step of which each rank has a copy here and on the next node.
        """
        now, regroup, began_s = self._worker.session.incarnation, self._worker.regroup, time.monotonic()
        if self._here is None or self._gave_up == now:
            return 0.0
        steps = copies.steps
        if self._arriving != now and any(map(copies.is_elsewhere, steps)):
            self._arriving = now
        if not steps or now not in (self._arriving, self._found):
            return 0.0
        newest, patience_s = max(steps), _PATIENCE_S if self._arriving == now else _FIRST_S
        while not copies.is_elsewhere(newest) and not regroup.is_lost(now):
            if regroup.copies_ended >= now:
                self._gives_up(regroup.copies_why)
                break
            if time.monotonic() > began_s + patience_s:
                self._gives_up(f"that of step {newest} has not arrived after {patience_s:g} s")
                break
            time.sleep(_LOOK_S)
        if copies.is_elsewhere(newest):
            self._arriving = now
        return time.monotonic() - began_s

    @property
    def _here(self) -> CopiesAt | None:
        """Where this node takes in copies, as the supervisor says; None on a node alone or before any."""
        here = self._worker.regroup.copies_at
        return here if here is not None and here.incarnation == self._worker.session.incarnation else None

    def _gives_up(self, why: str) -> None:
        self._gave_up = self._worker.session.incarnation
        told(
            f"the next node keeps no copies of this rank's shard ({why}): a lost host may cost all steps"
            " since the last checkpoint"
        )

    @property
    def takes_copies(self) -> bool:
        """Whether the next node has had a copy of this rank in this incarnation."""
        return self._arriving == self._worker.session.incarnation
