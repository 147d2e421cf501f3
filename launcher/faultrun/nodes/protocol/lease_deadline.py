"""How long this node's workers may live: by its lease, or because every peer is as deaf as it is.

Pure, in seconds of this machine's CLOCK_BOOTTIME. A lease counts from when the answered request was *sent*.
An answer "deaf, too" is a promise: a node that gave it decides nothing for the run until no node can rely on
it any more, ``2 * hold_s`` after hearing the store again, and during the first half of that still gives it.
"""

import math
from dataclasses import replace

from faultrun.model.observed.node_fact import NodeFact
from faultrun.nodes.protocol.peer_completion import told_status
from faultrun.nodes.values.lease import Lease, LeaseTimes
from faultrun.nodes.values.membership import NodeSettings, PeerAnswer, PeerQuestion, Stated
from faultrun.nodes.values.roster import PlanHeader, PlanPhase, Roster, RosterEntry

NEVER_S = -math.inf


def granted(before: Lease | None, number: int, sent_at_s: float, now_s: float) -> Lease:
    """A new lease, asked for at ``sent_at_s``; ``before`` is the one that this boot had, if it had any."""
    heard_at_s = NEVER_S if before is None else now_s
    return Lease(number=number, sent_at_s=sent_at_s, granted_at_s=now_s, heard_at_s=heard_at_s)


def renewed(lease: Lease, sent_at_s: float, now_s: float, times: LeaseTimes) -> Lease:
    """The lease after the answer to a request that was sent at ``sent_at_s`` has come."""
    heard_at_s = now_s if is_deaf(lease, times, now_s) else lease.heard_at_s
    return replace(lease, sent_at_s=max(lease.sent_at_s, sent_at_s), heard_at_s=heard_at_s, tried=False)


def tried(lease: Lease, sent_at_s: float) -> Lease:
    """The lease after a request of ``sent_at_s``, sent because a peer asked, had no answer in its time."""
    return lease if lease.sent_at_s >= sent_at_s else replace(lease, tried=True)


def is_deaf(lease: Lease | None, times: LeaseTimes, now_s: float) -> bool:
    """Whether the store has been silent for so long that a node asks its peers, or when a peer asked."""
    return lease is None or lease.dropped or lease.tried or now_s - lease.sent_at_s >= times.deaf_s


def answer(
    question: PeerQuestion,
    fact: NodeFact,
    header: PlanHeader | None,
    lease: Lease | None,
    times: LeaseTimes,
    now_s: float,
) -> PeerAnswer:
    """What to answer a peer that has not heard of the store; the asking node fills in when.

    Who still thinks that it hears the store tries at once (``tried``), and says so when it is asked again:
    else the last to notice a silence would notice it when the first has no time left.
    """
    silent = lease is not None and (is_deaf(lease, times, now_s) or now_s < lease.heard_at_s + times.hold_s)
    deaf = silent and fact.incarnation == question.incarnation
    node, boot, life = fact.node, fact.boot, fact.incarnation
    status = told_status(fact, header)
    return PeerAnswer(node=node, boot=boot, incarnation=life, deaf=deaf, asked_at_s=NEVER_S, status=status)


def free_to_decide(lease: Lease, times: LeaseTimes, now_s: float, *, heir: bool) -> bool:
    """Whether no node can rely any more on an answer that this node gave while it did not hear the store.

    An ``heir`` never gave one; the supervisor before it did, until it died.
    """
    promised_s = max(lease.heard_at_s, lease.granted_at_s) if heir else lease.heard_at_s
    return not is_deaf(lease, times, now_s) and now_s >= promised_s + 2 * times.hold_s


def by_lease_until_s(times: LeaseTimes, lease: Lease | None, own: Stated | None) -> float:
    """A lease counts while the node's statement is known to live by it."""
    if lease is None or lease.dropped or own is None or own.lease != lease.number:
        return NEVER_S
    return lease.sent_at_s + times.fence_s


def by_peers_until_s(
    terms: NodeSettings,
    fact: NodeFact,
    header: PlanHeader | None,
    roster: Roster | None,
    answers: tuple[PeerAnswer, ...],
) -> float:
    """Unanimity counts from the oldest question whose answer it rests on."""
    if not terms.hold or not answers:
        return NEVER_S
    if not (peers := peers_of(fact, header, roster)):
        return NEVER_S
    newest = {(one.node, one.boot): one for one in sorted(answers, key=lambda one: one.asked_at_s)}
    asked = (_promised_at_s(fact, newest.get((peer.node, peer.boot))) for peer in peers)
    return min(asked) + terms.times.hold_s


def peers_of(fact: NodeFact, header: PlanHeader | None, roster: Roster | None) -> tuple[RosterEntry, ...]:
    """The other members of the incarnation that this node takes part in; none if it takes no part."""
    if header is None or roster is None or not roster.has(fact.node, fact.boot):
        return ()
    if header.incarnation != fact.incarnation or header.phase not in (PlanPhase.PREPARE, PlanPhase.GO):
        return ()
    return tuple(entry for entry in roster.entries if entry.node != fact.node)


def _promised_at_s(fact: NodeFact, given: PeerAnswer | None) -> float:
    """When the question was asked, if it was answered with the promise."""
    if given is None or not given.deaf or given.incarnation != fact.incarnation:
        return NEVER_S
    return given.asked_at_s
