"""How far the nodes of an incarnation are by their own word, for a node that has no ranks left and no etcd.

Pure. A rank that has ended with 0 stays so: that every member's ranks have is a fact, by whichever node it is
told, and the run's end with 0 follows from it without a coordinator. Everything else waits for one, or for
the limit.
"""

from dataclasses import dataclass

from faultrun.model.observed.node_fact import NodeDone, NodeFact, NodeStatus, WithoutWorkers
from faultrun.model.topology import BootId, NodeId
from faultrun.nodes.values.lease import Lease, LeaseTimes
from faultrun.nodes.values.membership import KnownKeys, PeerWord
from faultrun.nodes.values.roster import PlanHeader, PlanPhase, Roster, RosterEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The other members by what they said of the incarnation: who is in none of these has finished.

    ``running``: said so within a lease. ``over``: it ended there without having finished. ``silent``: nothing
    was heard of them, or nothing since.
    """

    running: tuple[NodeId, ...] = ()
    over: tuple[NodeId, ...] = ()
    silent: tuple[NodeId, ...] = ()

    @property
    def everywhere(self) -> bool:
        """Whether every member's ranks have all ended with 0."""
        return not (self.running or self.over or self.silent)


def completion(
    fact: NodeFact,
    header: PlanHeader | None,
    roster: Roster | None,
    known: KnownKeys,
    times: LeaseTimes,
    now_s: float,
) -> Completion | None:
    """How far the others are; None where it means nothing: ranks of this node run, or did not finish."""
    if header is None or roster is None or header.phase is not PlanPhase.GO:
        return None
    if not (_has_finished(fact, header, roster) or is_spare(fact, roster)):
        return None
    said = {(word.node, word.boot): word for word in known.words}
    running, over, silent = [], [], []
    for entry in roster.entries:
        if (entry.node, entry.boot) == (fact.node, fact.boot):
            continue
        word = said.get((entry.node, entry.boot))
        if word is None or (_runs(word, header) and now_s >= word.heard_at_s + times.ttl_s):
            silent.append(entry.node)
        elif _runs(word, header):
            running.append(entry.node)
        elif not has_finished(word, header.incarnation):
            over.append(entry.node)
    if (alarm := known.alarm(header.incarnation)) is not None and alarm.node not in over:
        over.append(alarm.node)
    return Completion(running=tuple(running), over=tuple(over), silent=tuple(silent))


def members_to_ask(
    fact: NodeFact, header: PlanHeader | None, roster: Roster | None
) -> tuple[RosterEntry, ...]:
    """Members whose word counts for a node that has finished or was told to stop, and for a spare."""
    if header is None or roster is None or header.phase is not PlanPhase.GO:
        return ()
    if not (_has_finished(fact, header, roster) or is_spare(fact, roster) or _leaves(fact, header, roster)):
        return ()
    return tuple(entry for entry in roster.entries if entry.node != fact.node)


def who_relies(
    fact: NodeFact,
    header: PlanHeader | None,
    roster: Roster | None,
    known: KnownKeys,
    lease: Lease | None,
    times: LeaseTimes,
    now_s: float,
) -> tuple[NodeId, ...]:
    """Members whose ranks may live by the promise of this node, which was told to stop.

    Who said that its ranks are gone does not. A node of which nothing was heard may still find out that the
    store is silent, and ask, until this node's own lease would have had its ranks killed.
    """
    if header is None or roster is None or lease is None or header.phase is not PlanPhase.GO:
        return ()
    if not _leaves(fact, header, roster):
        return ()
    said = {(word.node, word.boot): word for word in known.words}
    found = []
    for entry in roster.entries:
        if (word := said.get((entry.node, entry.boot))) is None:
            relies = now_s < lease.sent_at_s + times.fence_s
        else:
            relies = _runs(word, header) and now_s < word.heard_at_s + times.hold_s
        if relies and entry.node != fact.node:
            found.append(entry.node)
    return tuple(found)


def has_finished(word: PeerWord, incarnation: int) -> bool:
    """Whether all ranks that this supervisor had of ``incarnation`` ended with 0."""
    return word.incarnation == incarnation and word.status is NodeStatus.DONE


def told_status(fact: NodeFact, header: PlanHeader | None) -> NodeStatus:
    """How far this node tells a peer that it is, which may end with 0 by that word.

    Once it knows that the others look for where to begin again, it takes part in that: no node may leave any
    more because this one has finished. Who was told so before has said the same of itself, and is believed.
    """
    if not isinstance(fact.status, NodeDone) or header is None:
        return fact.word
    ended = header.phase is PlanPhase.FINISHED and header.exit_code == 0
    counts = header.incarnation == fact.incarnation and (header.phase is PlanPhase.GO or ended)
    return NodeStatus.DONE if counts else NodeStatus.JOINED


def finished_by_word(known: KnownKeys, incarnation: int) -> frozenset[tuple[NodeId, BootId]]:
    """Supervisors that said so directly."""
    return frozenset((one.node, one.boot) for one in known.words if has_finished(one, incarnation))


def is_spare(fact: NodeFact, roster: Roster) -> bool:
    """Whether the node only waits for a seat."""
    return fact.is_free and roster.entry(fact.node) is None


def _has_finished(fact: NodeFact, header: PlanHeader, roster: Roster) -> bool:
    here = isinstance(fact.status_in(header.incarnation), NodeDone)
    return here and fact.is_free and roster.has(fact.node, fact.boot)


def _leaves(fact: NodeFact, header: PlanHeader, roster: Roster) -> bool:
    """Whether a member was told to stop whose ranks are gone."""
    here = isinstance(fact.status_in(header.incarnation), WithoutWorkers)
    return here and fact.stop is not None and roster.has(fact.node, fact.boot)


def _runs(word: PeerWord, header: PlanHeader) -> bool:
    return word.incarnation == header.incarnation and word.status.busy
