"""For how long a node without workers waits, and what it ends with by itself.

Pure. While a coordinator is there it ends the run for all; this is for those without a coordinator, or
that were told to stop while others were not.

A training that has finished must not be told to the platform as failed, or it is started again and does
hours of work twice; nor may a node say 0 where it knows that another's ranks failed.
"""

from dataclasses import replace

from faultrun.core.humanize import node_names, span
from faultrun.core.plan.run_end import stop_exit_code
from faultrun.model.events import RunFinished
from faultrun.model.observed.node_fact import NodeDone, NodeFact
from faultrun.model.stop import StopSource
from faultrun.nodes.protocol.judge_input import JudgeInput
from faultrun.nodes.values.membership import MemberClock

NOBODY_CAME = 69


def since(before_s: float | None, now_s: float, *, holds: bool) -> float | None:
    """Since when something holds; None while it does not."""
    if not holds:
        return None
    return now_s if before_s is None else before_s


def patience_over(case: JudgeInput, *, alone: bool) -> RunFinished | None:
    """The end of this node's part, if it waited long enough. ``alone``: it does not coordinate."""
    fact, clock, times = case.own.fact, case.clock, case.terms.times
    if fact.unfit and fact.failure is not None and _goes_on_without(case):
        return ends(fact, clock, fact.failure[0], f"{fact.failure[1]}; the other nodes go on")
    leaving, waiting = case.remembered.leaving_since_s, case.remembered.waiting_since_s
    if leaving is not None and fact.stop is not None and clock.now_s >= leaving + times.leave_s:
        return None if _is_needed(case, leaving) else _stopped(case, fact.stop)
    if alone and waiting is not None and clock.now_s >= waiting + times.node_wait_s:
        return ends(fact, clock, NOBODY_CAME, _nobody_decided(case))
    return None


def _goes_on_without(case: JudgeInput) -> bool:
    """Whether there is a newer plan, which has no place for this supervisor."""
    fact, header, roster = case.own.fact, case.header, case.roster
    if header is None or roster is None or header.incarnation <= fact.incarnation:
        return False
    return not roster.has(fact.node, fact.boot)


def _stopped(case: JudgeInput, stop: StopSource) -> RunFinished:
    others = "etcd does not answer" if case.deaf else "the other nodes go on"
    why = f"stopped by {stop.value}; {others}"
    code = stop_exit_code(case.rules.exit_code_on_stop, stop)
    return ends(case.own.fact, case.clock, code, why, stopped=True)


def _is_needed(case: JudgeInput, leaving_since_s: float) -> bool:
    """Whether ranks of others may live by the promise of this node, which was told to stop: they save, too.

    While it is unknown yet whether the store answers, that is not known either.
    """
    now_s, times, own = case.clock.now_s, case.terms.times, case.known.own
    if case.deaf:
        return bool(case.relying) and now_s < leaving_since_s + times.node_wait_s
    unheard = own is not None and own.statement.fact != case.own.fact
    return case.terms.hold and unheard and now_s < leaving_since_s + times.ttl_s


def _nobody_decided(case: JudgeInput) -> str:
    """With what is known of the incarnation that no node could answer."""
    fact, wait = case.own.fact, span(case.terms.times.node_wait_s)
    silent, alone = "etcd did not answer for", "no node that may decide for the run came within"
    waited = f"{silent if case.deaf else alone} {wait}"
    if (alarm := case.known.alarm(fact.incarnation)) is not None:
        return f"{waited}; node {alarm.node}: {alarm.why}" if alarm.node else f"{waited}; {alarm.why}"
    if case.completion is not None and case.completion.over:
        return f"{waited}; {node_names(case.completion.over)} did not finish"
    incident = fact.left.incident
    return f"{waited}; {incident.explanation}" if incident is not None else waited


def known_end(case: JudgeInput) -> RunFinished | None:
    """What a node that has finished, and does not hear the store, ends with by what the others said.

    A moment after it knows, so that who has asked it hears the same. Who is silent for as long as the run
    waits for a node says nothing against it: whatever befell that one, its own end tells.
    """
    then, times, fact, others = case.remembered, case.terms.times, case.own.fact, case.completion
    if not case.deaf or others is None or others.over:
        return None
    if then.finished_since_s is not None and case.clock.now_s >= then.finished_since_s + times.leave_s:
        why = "every rank finished, by the word of each node: etcd does not answer"
        return ends(fact, case.clock, 0, why)
    since_s = then.waiting_since_s
    too_late = since_s is not None and case.clock.now_s >= since_s + times.node_wait_s
    if not isinstance(fact.status, NodeDone) or others.everywhere or not too_late:
        return None
    silent = node_names(others.silent)
    why = (
        f"every rank of this node finished; how those of {silent} ended is not known here, because neither "
        f"etcd nor {silent} answered for {span(times.node_wait_s)}"
    )
    return replace(ends(fact, case.clock, 0, why), unheard=others.silent)


def ends(fact: NodeFact, clock: MemberClock, code: int, why: str, *, stopped: bool = False) -> RunFinished:
    """Return the end of this node's part in the run."""
    incarnation = fact.incarnation
    return RunFinished(at_s=clock.run_s, incarnation=incarnation, exit_code=code, why=why, stopped=stopped)
