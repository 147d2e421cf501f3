"""What one node of many does next about the run they share: one pure function of what it read and heard.

The member process calls ``judge`` whenever something changed (keys read, an answer or a warning of a peer,
a statement of the supervisor, a lease answered) and at ``Judgement.judge_at_s``, and performs the acts.

* It is level-triggered: acts follow from the state, and the same act is given again until the state has
  changed. The agent performs them, starts none that is still under way, and after an answered transaction
  waits until the keys were read at its revision. Tell, AskPeers and WarnPeers are given once.
* Answers of transactions decide nothing: what happened is seen in the keys that are read next.
* ``alive_until_s`` goes to the process that kills workers at a deadline, each time. It only holds while
  ``own.lease`` is kept by ``lease_deadline.granted`` and ``lease_deadline.renewed``, from when a request was
  *sent*.
* After ``Fence`` the lease is renewed no more and ``own.lease`` is None, until ``GrantLease`` is asked for
  again: that is when the supervisor, under another boot, has stated that its workers are gone.
* ``now_s`` is CLOCK_BOOTTIME; ``run_s`` is the supervisor's run-seconds, as are all times in events.
"""

from collections.abc import Iterator
from dataclasses import replace

from faultrun.core.humanize import span
from faultrun.core.plan.next_plan import Rules
from faultrun.core.plan.waiting import Waiting
from faultrun.model.events import RunFinished
from faultrun.model.observed.agreement import AgreementSilent
from faultrun.nodes.protocol import lease_deadline
from faultrun.nodes.protocol.coordinator import NOTES_A_SAVE, coordinated
from faultrun.nodes.protocol.coordinator_input import CoordinatorInput
from faultrun.nodes.protocol.deduplication import as_read, words_of
from faultrun.nodes.protocol.election import (
    election,
    leads,
    may_act,
    may_lead,
    resignation,
    still_coordinator,
    waits_in_line_s,
)
from faultrun.nodes.protocol.judge_input import JudgeInput, judge_input
from faultrun.nodes.protocol.peer_completion import finished_by_word
from faultrun.nodes.protocol.plan_events import news_for_supervisor
from faultrun.nodes.protocol.presence import LONGEST_WORDS, QUESTIONS_A_HOLD, present, questions, warned
from faultrun.nodes.protocol.started_alike import refused
from faultrun.nodes.protocol.waiting_ends import known_end, patience_over, since
from faultrun.nodes.protocol.waiting_nodes import nodes_waiting, noted, own_aside, plan_elsewhere, spare_words
from faultrun.nodes.values.membership import (
    COORDINATOR_KEY,
    Act,
    AskPeers,
    Commit,
    CommonKeys,
    Fence,
    Judgement,
    KnownKeys,
    MemberClock,
    NodeSettings,
    OwnState,
    Remembered,
    Tell,
)
from faultrun.nodes.values.roster import PlanPhase
from faultrun.nodes.values.transaction import Put, Transaction, Unchanged

_LONGEST_MEMORY = 16
_END_OF_WORKERS = Waiting(reason="the end of this node's workers", limited=False)
_STANDS_STILL = 1 / 2
"""The share of a lease after which a node that renews late has stood still, and was not only slow."""


def judge(
    rules: Rules,
    terms: NodeSettings,
    own: OwnState,
    known: KnownKeys,
    remembered: Remembered,
    clock: MemberClock,
) -> Judgement:
    """Return what this node does now, until when its workers may live, and when to ask again.

    Total and deterministic; ``remembered`` is what the judgement before gave. The module tells the contract.
    """
    case = judge_input(rules, terms, own, known, remembered, clock)
    if remembered.fenced == (fact := own.fact).boot:
        return _judgement(case, (), _END_OF_WORKERS)
    if fact.busy and clock.now_s >= case.alive_until_s:
        return _fenced(case, Fence(incarnation=fact.incarnation, why=_why_alone(case)))
    news = [*_news(case)]
    fence = next((one for one in news if isinstance(one, Fence)), None)
    if fence is not None:
        return _fenced(case, fence)
    case = replace(case, remembered=_unled(case))
    given, waits = _as_coordinator(case)
    asked = tuple(questions(case))
    news += _silence(case, asked)
    case = replace(case, remembered=_timed(case, waits=waits is not None, asks=bool(asked)))
    waiting = nodes_waiting(case, _coordinator_input(case))
    news += waiting
    case = replace(case, remembered=noted(case.remembered, waiting))
    acts = (*news, *present(case), *warned(case), *asked, *given, *_own_end(case))
    return _judgement(case, acts, waits)


def _fenced(case: JudgeInput, fence: Fence) -> Judgement:
    """Nothing is done any more under this boot."""
    remembered = replace(case.remembered, fenced=case.own.fact.boot, asked_at_s=None)
    case = replace(case, remembered=remembered, alive_until_s=lease_deadline.NEVER_S)
    return _judgement(case, (fence,), _END_OF_WORKERS)


def _why_alone(case: JudgeInput) -> str:
    """What kept the lease from being renewed: this node itself, or etcd."""
    lease, longest_s = case.own.lease, case.terms.times.ttl_s * _STANDS_STILL
    due_at_s = case.clock.now_s if case.remembered.due_at_s is None else case.remembered.due_at_s
    if (late_s := case.clock.now_s - due_at_s) >= max(longest_s, case.own.frozen_s):
        return f"this node stood still for {span(late_s)}: frozen, or suspended"
    if case.own.frozen_s >= longest_s:
        return f"its supervisor stood still for {span(case.own.frozen_s)}: frozen, or without a processor"
    if lease is None or lease.dropped:
        return "etcd has dropped the lease of this node: another may get its place"
    silent_s = case.clock.now_s - lease.sent_at_s
    return f"etcd has not answered this node for {span(silent_s)}, and not every node says the same"


def _news(case: JudgeInput) -> Iterator[Tell | Fence]:
    """What the supervisor does not know yet; nothing before its own statement was seen to be there."""
    if case.known.own is None:
        return
    if case.header is None or (case.header.phase is PlanPhase.FINISHED and not case.knows_whose_end):
        return
    if _tells_of_the_end_soon(case):
        return
    fact, known, clocks = case.own.fact, case.known, (case.clock.run_s, case.remembered.run_ahead_s)
    for news in news_for_supervisor(fact, known, case.header, case.roster, case.body, *clocks):
        if isinstance(news, RunFinished):
            restarts = None if case.body is None else case.body.ledger.total_restarts
            yield Tell(event=replace(news, aftermath=case.last_incident, restarts=restarts))
        else:
            yield news if isinstance(news, Fence) else Tell(event=news)
    yield from own_aside(case)
    yield from plan_elsewhere(case)


def _tells_of_the_end_soon(case: JudgeInput) -> bool:
    """Whether what all write their last card from is on its way: not for long, and not without the store."""
    header, since_s = case.header, case.remembered.ended_since_s
    if header is None or header.phase is not PlanPhase.FINISHED or case.own.fact.busy:
        return False
    lacks = bool(header.last) and case.last_incident is None and not case.deaf
    return lacks and (since_s is None or case.clock.now_s < since_s + case.terms.times.leave_s)


def _silence(case: JudgeInput, asked: tuple[AskPeers, ...]) -> Iterator[Tell]:
    """The supervisor hears once that others are asked."""
    if asked and case.remembered.asked_at_s is None:
        why = "etcd does not answer; asking the other nodes whether they hear it"
        fact = case.own.fact
        yield Tell(event=AgreementSilent(at_s=case.clock.run_s, incarnation=fact.incarnation, why=why))


def _as_coordinator(case: JudgeInput) -> tuple[tuple[Act, ...], Waiting | None]:
    """What this node does as the coordinator or to become it, and what it waits for as such."""
    fact, common, lease = case.own.fact, case.common, case.own.lease
    over = case.header is not None and case.header.phase is PlanPhase.FINISHED
    if not case.is_heard or lease is None or case.parts_missing or over:
        return (), None
    fits = may_lead(case.terms, fact.boot, case.header, case.roster) and not _is_odd(case)
    if not leads(common, fact):
        free = common.coordinator is None and fits and fact.stop is None and _is_its_turn(case)
        return ((Commit(transaction=election(case.terms, fact.boot, common)),) if free else ()), None
    if not fits:
        return (Commit(transaction=resignation(common)),), None
    if not may_act(case.terms, fact.boot, case.header, case.roster, lease, case.clock.now_s):
        return (), Waiting(reason="nodes that may not hear etcd yet")
    return _decided(case)


def _is_its_turn(case: JudgeInput) -> bool:
    unled_s = case.remembered.unled_since_s
    turn_s = waits_in_line_s(case.terms, case.own.fact.boot, case.roster if case.header else None)
    return case.clock.now_s >= (case.clock.now_s if unled_s is None else unled_s) + turn_s


def _decided(case: JudgeInput) -> tuple[tuple[Act, ...], Waiting | None]:
    """The coordinator's next write, or what it waits for, which it lets every node know."""
    given, since_s = _coordinator_input(case), case.remembered.waiting_since_s
    if given is None:
        return (), None
    wait_is_over = since_s is not None and case.clock.now_s >= since_s + case.terms.times.node_wait_s
    run_s = case.clock.run_s + case.remembered.run_ahead_s
    following = coordinated(case.rules, given, run_s, wait_is_over=wait_is_over)
    if isinstance(following, Transaction):
        # The wait is over only once that is written: else it would begin anew where the store is slow.
        phase, fewer = (
            (PlanPhase.GO, False) if case.header is None else (case.header.phase, case.header.fewer)
        )
        first = phase is PlanPhase.GO or (
            phase is PlanPhase.LOOK and not fewer
        )  # of the writes after the wait
        lasts = (wait_is_over and first) or following.what == NOTES_A_SAVE
        said = None if case.common.coordinator is None else case.common.coordinator.waiting
        return (Commit(transaction=following),), said if lasts else None
    waits = replace(following, reason=following.reason[:LONGEST_WORDS]) if following.missing else None
    return _said(case.common, waits), waits


def _coordinator_input(case: JudgeInput) -> CoordinatorInput | None:
    """What a coordinator decides from; None while no statements were read."""
    nodes, header = case.known.nodes, case.header
    if nodes is None:
        return None
    return CoordinatorInput(
        terms=case.terms,
        common=case.common,
        nodes=nodes,
        header=header,
        roster=case.roster,
        body=case.body,
        finished=frozenset() if header is None else finished_by_word(case.known, header.incarnation),
    )


def _said(common: CommonKeys, waits: Waiting | None) -> tuple[Act, ...]:
    """The coordinator's own key tells what the run waits for."""
    if common.coordinator is None:
        return ()
    reason, hopeless = ("", False) if waits is None else (waits.reason, waits.hopeless)
    if (said := replace(common.coordinator, waits=reason, hopeless=hopeless)) == common.coordinator:
        return ()
    seen = Unchanged(key=COORDINATOR_KEY, changed=common.coordinator_changed)
    compares, put = (still_coordinator(common), seen), Put(key=COORDINATOR_KEY, value=said, leased=True)
    what = f"wait for {reason or 'nobody'}"
    return (Commit(transaction=Transaction(what=what, compares=compares, then=(put,))),)


def _unled(case: JudgeInput) -> Remembered:
    """Since when no node coordinates, as far as this node knows."""
    holds = case.common.coordinator is None or case.deaf
    unled_s = since(case.remembered.unled_since_s, case.clock.now_s, holds=holds)
    return replace(case.remembered, unled_since_s=unled_s)


def _timed(case: JudgeInput, *, waits: bool, asks: bool) -> Remembered:
    """Since when what has been so."""
    now_s, before, fact = case.clock.now_s, case.remembered, case.own.fact
    others = case.completion
    alone = not fact.busy and before.unled_since_s is not None
    # Who still has ranks rests on our promise, and tells how they end: there is no limit to that.
    awaited = case.deaf and others is not None and bool(others.running) and not others.over
    finished = case.deaf and others is not None and others.everywhere
    ended = case.header is not None and case.header.phase is PlanPhase.FINISHED
    return replace(
        before,
        asked_at_s=now_s if asks else None if case.is_heard else before.asked_at_s,
        waiting_since_s=since(before.waiting_since_s, now_s, holds=(waits or alone) and not awaited),
        leaving_since_s=since(before.leaving_since_s, now_s, holds=fact.stop is not None and not fact.busy),
        finished_since_s=since(before.finished_since_s, now_s, holds=finished),
        ended_since_s=since(before.ended_since_s, now_s, holds=ended),
    )


def _own_end(case: JudgeInput) -> Iterator[Tell]:
    """The end of this node's part, if it has no workers and no other node ends it."""
    fact, over = case.own.fact, case.header is not None and case.header.phase is PlanPhase.FINISHED
    if fact.busy or over:
        return
    end = refused(case.terms, fact, case.common, case.roster, case.clock)
    alone = case.deaf or not leads(case.common, fact)  # who coordinated decides nothing without the store
    end = end or known_end(case)
    end = end or patience_over(case, alone=alone)
    if end is not None:
        yield Tell(event=end)


def _is_odd(case: JudgeInput) -> bool:
    """Whether members of the plan live that were started with something else: then it is theirs."""
    if case.roster is None or case.known.nodes is None:
        return False
    members = [one for one in case.known.nodes.stated if case.roster.has(one.node, one.boot)]
    return any(one.statement.asked != case.terms.asked for one in members)


def _judgement(case: JudgeInput, acts: tuple[Act, ...], waits: Waiting | None) -> Judgement:
    """The answer, without what was told before."""
    told, fresh, next_at_s = list(case.remembered.told), [], _next_at_s(case)
    for act in acts:
        if (words := words_of(act, case.own.fact)) and words in told:
            continue
        fresh.append(as_read(act, case.common.revision))
        if words:
            told.append(words)
    return Judgement(
        remembered=replace(case.remembered, told=tuple(told[-_LONGEST_MEMORY:]), due_at_s=next_at_s),
        acts=tuple(fresh),
        alive_until_s=case.alive_until_s,
        judge_at_s=next_at_s,
        coordinates=leads(case.common, case.own.fact),
        waits=waits or case.waits_elsewhere,
        waits_since_s=case.remembered.waiting_since_s,
        spare=spare_words(case),
    )


def _next_at_s(case: JudgeInput) -> float:
    """The next moment at which something changes by itself; at most a lease from now."""
    times, lease, then, now_s = case.terms.times, case.own.lease, case.remembered, case.clock.now_s
    moments = [case.alive_until_s]
    if lease is not None:
        free_at_s = max(lease.heard_at_s, lease.granted_at_s) + 2 * times.hold_s
        moments += [lease.sent_at_s + times.deaf_s, free_at_s]
    for since_s, wait_s in (
        (then.unled_since_s, waits_in_line_s(case.terms, case.own.fact.boot, case.roster)),
        (then.waiting_since_s, times.node_wait_s),
        (then.asked_at_s, times.hold_s / QUESTIONS_A_HOLD),
        (then.leaving_since_s, times.leave_s),
        (then.finished_since_s, times.leave_s),
        (then.ended_since_s, times.leave_s),
    ):
        if since_s is not None:
            moments.append(since_s + wait_s)
    return min((at for at in moments if at > now_s), default=now_s + times.ttl_s)
