"""What a person hears of a node's standing among the others: that it is a spare, and what it waits for."""

import math
from datetime import datetime, timedelta

from faultrun.core.humanize import several, span
from faultrun.core.plan.waiting import Waiting
from faultrun.model.topology import RunId
from faultrun.nodes.agent.pipe_protocol import SAYS, Words
from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.values.membership import Judgement

_SHORT_WAIT_S = 2.0


class Announcements:
    """Says each thing once, when it begins; ``at_s`` is when something is to be said by itself.

    What takes no longer than an election or a plan, ``short_wait_s``, is not said. ``min_nodes``: so many go
    on without who is missing once the wait is over; 0: all are needed.
    """

    def __init__(
        self,
        run_id: RunId,
        node_wait_s: float,
        words: Words,
        min_nodes: int = 0,
        short_wait_s: float = _SHORT_WAIT_S,
    ) -> None:
        self._run_id, self._node_wait_s, self._short_wait_s = run_id, node_wait_s, short_wait_s
        self._then = f"; then without, with {several(min_nodes, 'node')} at least" if min_nodes else ""
        self._words = words
        self._waits: Waiting | None = None
        self._spare = ""
        self._since_s = 0.0
        self._troubles: dict[str, float] = {}
        self.at_s = math.inf

    def tell(self, judged: Judgement) -> None:
        """Call it with every judgement."""
        if judged.spare != self._spare:
            self._spare = judged.spare
            if judged.spare:
                self._words.write({SAYS: f"spare of run {self._run_id}: {judged.spare}"})
        now_s = boot_now()
        if judged.waits != self._waits:
            self._waits, self._since_s = judged.waits, now_s
            self.at_s = now_s + self._short_wait_s if judged.waits else math.inf
        elif judged.waits is not None and now_s >= self.at_s:
            self.at_s = math.inf
            since_s = self._since_s if judged.waits_since_s is None else judged.waits_since_s
            then = "" if judged.waits.hopeless else self._then
            until = f", {self._until(since_s - now_s, then)}" if judged.waits.limited else ""
            self._words.write({SAYS: f"waiting for {judged.waits.reason}{until}"})

    def trouble(self, text: str, heard_at_s: float) -> None:
        """Say what is wrong with etcd, once in each silence; the members that fail one by one are no news.

        ``heard_at_s``: when a request was sent that etcd answered.
        """
        what = text.partition("\n")[0]
        if what not in self._troubles or self._troubles[what] <= heard_at_s:
            self._words.write({SAYS: text})
            self._troubles[what] = boot_now()

    def _until(self, begun_s: float, then: str) -> str:
        """``begun_s``: when the wait began, from now."""
        until = datetime.now().astimezone() + timedelta(seconds=begun_s + self._node_wait_s)
        return f"until {until:%H:%M:%S} (--node_wait, {span(self._node_wait_s)}{then})"
