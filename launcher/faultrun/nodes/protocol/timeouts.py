"""For how long a node without workers waits, and what it ends with by itself.

Pure. While a coordinator is there it ends the run for all; what is here is for those that nobody leads,
that were told to stop while others were not, or that were started with something else.

A training that has finished must not be told to the platform as failed, or it is started again and does
hours of work twice; nor may a node say 0 where it knows that another's ranks failed.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from faultrun.core.humanize import node_names, span
from faultrun.core.plan.run_end import stop_exit_code
from faultrun.model.events import RunFinished
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.stop import StopSource
from faultrun.nodes.protocol.election import leads
from faultrun.nodes.protocol.judge_input import Standpoint
from faultrun.nodes.values.membership import CommonKeys, MemberClock, Terms
from faultrun.nodes.values.roster import Roster

ASKED = (
    "another script (its text counts)",
    "other arguments",
    "another framework",
    "another number of nodes or of workers a node",
    "another --max_restarts or --restart_window",
)
"""What has to be the same on all nodes, in the words of the refusal."""

OTHER_ARGUMENTS = 64
NOBODY_CAME = 69


def since(before_s: float | None, now_s: float, *, holds: bool) -> float | None:
    """Since when something holds; None while it does not."""
    if not holds:
        return None
    return now_s if before_s is None else before_s


def patience_over(case: Standpoint, *, alone: bool) -> RunFinished | None:
    """The end of this node's part, if it waited long enough. ``alone``: it does not coordinate."""
    fact, clock, times = case.own.fact, case.clock, case.terms.times
    if fact.unfit and fact.failure is not None and _goes_on_without(case):
        return _end(fact, clock, fact.failure[0], f"{fact.failure[1]}; the other nodes go on")
    leaving, waiting = case.remembered.leaving_since_s, case.remembered.waiting_since_s
    if leaving is not None and fact.stop is not None and clock.now_s >= leaving + times.leave_s:
        return None if _is_needed(case, leaving) else _stopped(case, fact.stop)
    if alone and waiting is not None and clock.now_s >= waiting + times.node_wait_s:
        return _end(fact, clock, NOBODY_CAME, _nobody_decided(case))
    return None


def _goes_on_without(case: Standpoint) -> bool:
    """Whether there is a newer plan, which has no place for this supervisor."""
    fact, header, roster = case.own.fact, case.header, case.roster
    if header is None or roster is None or header.incarnation <= fact.incarnation:
        return False
    return not roster.has(fact.node, fact.boot)


def _stopped(case: Standpoint, stop: StopSource) -> RunFinished:
    others = "etcd does not answer" if case.deaf else "the other nodes go on"
    why = f"stopped by {stop.value}; {others}"
    return _end(
        case.own.fact, case.clock, stop_exit_code(case.rules.exit_code_on_stop, stop), why, stopped=True
    )


def _is_needed(case: Standpoint, leaving_since_s: float) -> bool:
    """Whether ranks of others may live by the promise of this node, which was told to stop: they save, too.

    While nobody knows yet whether the store answers, that is not known either.
    """
    now_s, times, own = case.clock.now_s, case.terms.times, case.known.own
    if case.deaf:
        return bool(case.relying) and now_s < leaving_since_s + times.node_wait_s
    unheard = own is not None and own.statement.fact != case.own.fact
    return case.terms.hold and unheard and now_s < leaving_since_s + times.ttl_s


def _nobody_decided(case: Standpoint) -> str:
    """With what is known of the incarnation that nobody could answer."""
    fact, wait = case.own.fact, span(case.terms.times.node_wait_s)
    waited = (
        f"etcd did not answer for {wait}"
        if case.deaf
        else f"no node that may decide for the run came within {wait}"
    )
    alarm = case.known.alarm(fact.incarnation)
    if alarm is not None:
        return f"{waited}; node {alarm.node}: {alarm.why}" if alarm.node else f"{waited}; {alarm.why}"
    if case.completion is not None and case.completion.over:
        return f"{waited}; {node_names(case.completion.over)} did not finish"
    return f"{waited}; {fact.incident.explanation}" if fact.incident is not None else waited


def known_end(case: Standpoint) -> RunFinished | None:
    """What a node that has finished, and does not hear the store, ends with by what the others said.

    A moment after it knows, so that who has asked it hears the same. Who is silent for as long as the run
    waits for a node says nothing against it: whatever befell that one, its own end tells.
    """
    then, times, fact, others = case.remembered, case.terms.times, case.own.fact, case.completion
    if not case.deaf or others is None or others.over:
        return None
    if then.finished_since_s is not None and case.clock.now_s >= then.finished_since_s + times.leave_s:
        why = "every rank finished, by the word of each node: etcd does not answer"
        return _end(fact, case.clock, 0, why)
    too_late = (
        then.waiting_since_s is not None and case.clock.now_s >= then.waiting_since_s + times.node_wait_s
    )
    if fact.status is not NodeStatus.DONE or others.everywhere or not too_late:
        return None
    silent = node_names(others.silent)
    why = (
        f"every rank of this node finished; how those of {silent} ended is not known here, because neither "
        f"etcd nor {silent} answered for {span(times.node_wait_s)}"
    )
    return replace(_end(fact, case.clock, 0, why), unheard=others.silent)


def refused(
    terms: Terms, fact: NodeFact, common: CommonKeys, roster: Roster | None, clock: MemberClock
) -> RunFinished | None:
    """The end of a node that was started with something else than the run. Who takes part already goes on."""
    coordinator = common.coordinator
    if coordinator is None or coordinator.asked == terms.asked or leads(common, fact):
        return None
    if fact.status.busy or (roster is not None and roster.has(fact.node, fact.boot)):
        return None
    why = (
        f"node {fact.node} was started with {_differing(terms.asked, coordinator.asked)} than node "
        f"{coordinator.node}\n"
        "  because: all nodes of a run begin alike; the others go on without this one\n"
        "  try:     the same command on every node, but for --node_rank and --node_name; "
        "--rdzv-id=OTHER for another run"
    )
    return _end(fact, clock, OTHER_ARGUMENTS, why)


def asked(parts: Mapping[str, object]) -> str:
    """What a node is started with, as its statements carry it: a digest of each part, ``ASKED`` by name."""
    return "-".join(hashlib.sha256(repr(parts[name]).encode()).hexdigest()[:8] for name in ASKED)


def _differing(here: str, there: str) -> str:
    ours, theirs = here.split("-"), there.split("-")
    if not len(ours) == len(theirs) == len(ASKED):  # of another version
        return "something else"
    words = [name for name, one, other in zip(ASKED, ours, theirs, strict=True) if one != other]
    return " and ".join(words)


def _end(fact: NodeFact, clock: MemberClock, code: int, why: str, *, stopped: bool = False) -> RunFinished:
    return RunFinished(
        at_s=clock.run_s, incarnation=fact.incarnation, exit_code=code, why=why, stopped=stopped
    )
