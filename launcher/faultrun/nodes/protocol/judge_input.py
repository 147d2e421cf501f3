"""What one judgement of a node looks at: what it is, says, has read and remembers, and the moment.

Pure; ``nodes.protocol.judge`` tells the contract and decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from faultrun.core.humanize import node_names
from faultrun.core.plan.next_plan import Rules
from faultrun.core.plan.waiting import Waiting
from faultrun.model.incident import Aftermath
from faultrun.model.plan import Plan
from faultrun.model.topology import NodeId
from faultrun.nodes.protocol import lease_deadline
from faultrun.nodes.protocol.election import current
from faultrun.nodes.protocol.peer_completion import Completion, completion, who_relies
from faultrun.nodes.values.membership import (
    BODIES,
    ROSTERS,
    CommonKeys,
    KnownKeys,
    MemberClock,
    NodeSettings,
    OwnState,
    Remembered,
)
from faultrun.nodes.values.roster import PlanHeader, PlanPhase, Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeInput:
    """Everything that one judgement looks at, with what follows from it at once.

    ``header`` is the one that counts for this node, ``roster`` and ``body`` its parts, once they were read.
    ``relying``: whom this node, which was told to stop, may not leave alone while the store is silent.
    """

    rules: Rules
    terms: NodeSettings
    own: OwnState
    known: KnownKeys
    remembered: Remembered
    clock: MemberClock
    header: PlanHeader | None
    roster: Roster | None
    body: Plan | None
    alive_until_s: float
    completion: Completion | None
    relying: tuple[NodeId, ...]

    @property
    def common(self) -> CommonKeys:
        """What all nodes watch; nothing, as long as it was not read."""
        return self.known.common or CommonKeys(revision=0)

    @property
    def deaf(self) -> bool:
        """Whether the store does not answer."""
        return lease_deadline.is_deaf(self.own.lease, self.terms.times, self.clock.now_s)

    @property
    def is_heard(self) -> bool:
        """Whether this node has a say: the store answers, and its statement lives by its lease."""
        by_lease_s = lease_deadline.by_lease_until_s(self.terms.times, self.own.lease, self.known.own)
        return self.known.common is not None and not self.deaf and self.clock.now_s < by_lease_s

    @property
    def knows_whose_end(self) -> bool:
        """Whether it can tell an end of its run from that of an earlier one: once it has joined."""
        busy, fenced = self.own.fact.busy, self.remembered.fenced is not None
        return self.known.own is not None or busy or fenced or self.remembered.joined

    @property
    def waits_elsewhere(self) -> Waiting | None:
        """What holds this node up that it does not decide itself; None while it trains."""
        if self.own.fact.busy:
            return None
        if self.deaf:
            return self._waits_for_word
        if self.common.coordinator is None:
            return self._waits_for_lead
        return self.common.coordinator.waiting or self._waits_beside

    @property
    def _waits_for_lead(self) -> Waiting:
        """Once there is a plan only its members may decide, and this node may be none."""
        nodes = () if self.roster is None else tuple(seat.node for seat in self.roster.entries)
        if not nodes or self.own.fact.node in nodes:
            return Waiting(reason="a coordinator")
        return Waiting(reason=f"a coordinator, which only {node_names(nodes)} can be")

    @property
    def _waits_for_word(self) -> Waiting | None:
        """What ends the wait for the store: where this node has finished, a word of the others, too."""
        others = self.completion
        if self.relying:
            return _end_of_ranks(self.relying)
        if others is None or others.over:
            return Waiting(reason="etcd")
        if others.running:
            return _end_of_ranks(others.running)
        if others.everywhere:
            return None
        return Waiting(reason=f"etcd, or a word of {node_names(others.silent)}")

    @property
    def _waits_beside(self) -> Waiting | None:
        """What holds up a node whose seat in a run that goes on is another one's; see ``waiting_nodes``."""
        fact, seats = self.own.fact, () if self.roster is None else self.roster.entries
        if self.header is None or self.header.phase is not PlanPhase.GO or fact.stop is not None:
            return None
        boots = {seat.node: seat.boot for seat in seats}
        if not boots or boots.get(fact.node) == fact.boot:
            return None
        if fact.node in boots:
            reason = f"the end of another supervisor that is node {fact.node}, or of its lease"
            return Waiting(reason=reason, limited=False)
        return None

    @property
    def last_incident(self) -> Aftermath | None:
        """What the nodes told together of the incident that ended the run; None while it was not read."""
        key = f"{BODIES}{'' if self.header is None else self.header.last}"
        told = self.known.parts.get(key)
        return told.aftermath if isinstance(told, Plan) else None

    @property
    def parts_missing(self) -> tuple[str, ...]:
        """What has to be read before the header can be understood."""
        if (written := self.common.header) is None:
            return ()
        names = ((ROSTERS, written.roster), (BODIES, written.body), (BODIES, written.last))
        keys = (f"{folder}{name}" for folder, name in names if name)
        return tuple(key for key in keys if key not in self.known.parts)


def _end_of_ranks(nodes: Sequence[NodeId]) -> Waiting:
    return Waiting(reason=f"the end of the ranks of {node_names(nodes)}; etcd does not answer", limited=False)


def judge_input(
    rules: Rules,
    terms: NodeSettings,
    own: OwnState,
    known: KnownKeys,
    remembered: Remembered,
    clock: MemberClock,
) -> JudgeInput:
    """Put together what follows from keys, answers and clocks before anything is decided."""
    common = known.common or CommonKeys(revision=0)
    header, written = current(common, known.own, remembered), common.header
    if known.own is not None and header is not None and header.phase is not PlanPhase.FINISHED:
        remembered = replace(remembered, joined=True)
    roster = None if written is None else known.parts.get(f"{ROSTERS}{written.roster}")
    body = None if written is None else known.parts.get(f"{BODIES}{written.body}")
    roster = roster if isinstance(roster, Roster) else None
    by_peers_s = lease_deadline.by_peers_until_s(terms, own.fact, header, roster, known.answers)
    if written is not None and common.header_changed != remembered.clock_read_at:
        ahead_s = max(remembered.run_ahead_s, written.run_s - clock.run_s)
        remembered = replace(remembered, run_ahead_s=ahead_s, clock_read_at=common.header_changed)
    return JudgeInput(
        rules=rules,
        terms=terms,
        own=own,
        known=known,
        remembered=remembered,
        clock=clock,
        header=header,
        roster=roster,
        body=body if isinstance(body, Plan) else None,
        alive_until_s=max(lease_deadline.by_lease_until_s(terms.times, own.lease, known.own), by_peers_s),
        completion=completion(own.fact, header, roster, known, terms.times, clock.now_s),
        relying=who_relies(own.fact, header, roster, known, own.lease, terms.times, clock.now_s)
        if terms.hold
        else (),
    )
