"""How a node keeps its place among the others: its lease and statement, its alarms, its questions.

Pure. Nothing here is only for the coordinator: any node does it.
"""

from collections.abc import Iterator
from dataclasses import replace

from faultrun.model.observed.node_fact import NodeReady
from faultrun.nodes.protocol import lease_deadline
from faultrun.nodes.protocol.election import plan_as_seen
from faultrun.nodes.protocol.judge_input import JudgeInput
from faultrun.nodes.protocol.peer_completion import members_to_ask
from faultrun.nodes.values import membership
from faultrun.nodes.values.roster import PlanPhase, Statement
from faultrun.nodes.values.transaction import Absent, Compare, Delete, Operation, Put, Transaction, Unchanged

LONGEST_WORDS, QUESTIONS_A_HOLD = 200, 4


def present(case: JudgeInput) -> Iterator[membership.Act]:
    """Get a lease where there is none, and write this node's newest statement under it."""
    if case.parts_missing:
        yield membership.Fetch(keys=case.parts_missing)
    lease, own = case.own.lease, case.known.own
    if lease is None or lease.dropped:
        yield membership.GrantLease()
    elif case.known.common is not None:
        statement = _statement(case)
        known = None if own is None or own.lease != lease.number else own.statement
        if known is None or not (known == statement or _starts_now(case)):
            yield membership.Commit(transaction=_stating(case, statement))


def _starts_now(case: JudgeInput) -> bool:
    """Whether all that is new is that it is ready, and it waits for no node.

    Its next word, milliseconds later, is that its ranks run. Every node waits for each write of every node.
    """
    fact, header = case.own.fact, case.header
    if header is None or not isinstance(fact.status_in(header.incarnation), NodeReady):
        return False
    return header.phase is PlanPhase.GO and case.common.alarm(fact.incarnation) is None


def _statement(case: JudgeInput) -> Statement:
    terms = case.terms
    fact, addr, machine, asked = case.own.fact, terms.peer_addr, terms.machine, terms.asked
    return Statement(fact=fact, peer_addr=addr, machine=machine, asked=asked, node_rank=terms.node_rank)


def _stating(case: JudgeInput, statement: Statement) -> Transaction:
    """Only over the statement that was read: one that travels for long must not come after a newer one."""
    fact, own = statement.fact, case.known.own
    key = membership.node_key(fact.node, fact.boot)
    writes: list[Operation] = [Put(key=key, value=statement, leased=True)]
    if own is not None:
        compare = Unchanged(key=key, changed=own.changed)
        return Transaction(what=f"state {fact.word.value}", compares=(compare,), then=tuple(writes))
    if (fenced := case.remembered.fenced) is not None and fenced != fact.boot:
        writes.append(Delete(key=membership.node_key(fact.node, fenced)))
    before = None if case.roster is None else case.roster.entry(fact.node)
    if before is not None and before.boot != fact.boot and before.machine == case.terms.machine != "":
        # This supervisor is here, on the same machine: the one before is dead, and its lease needs no wait.
        writes.append(Delete(key=membership.node_key(before.node, before.boot)))
    return Transaction(what=f"join as {fact.word.value}", compares=(Absent(key=key),), then=tuple(writes))


def warned(case: JudgeInput) -> Iterator[membership.Act]:
    """Send this node's alarm to the other members, whether etcd lives or not, and write it to etcd."""
    alarm, header = case.own.raised, case.header
    if alarm is None or header is None or alarm.incarnation != header.incarnation:
        return
    if members := lease_deadline.peers_of(case.own.fact, header, case.roster):
        yield membership.WarnPeers(alarm=alarm, members=members)
    written = case.common.alarm(alarm.incarnation)
    if case.known.common is not None and (written is None or (written.stays and not alarm.stays)):
        key = membership.alarm_key(alarm.incarnation)
        compares: tuple[Compare, ...] = (plan_as_seen(case.common),)
        compares = compares if written else (Absent(key=key), *compares)
        what = f"say that incarnation {alarm.incarnation} is over"
        put = Put(key=key, value=replace(alarm, why=alarm.why[:LONGEST_WORDS]))
        yield membership.Commit(transaction=Transaction(what=what, compares=compares, then=(put,)))


def questions(case: JudgeInput) -> Iterator[membership.AskPeers]:
    """A node whose workers live by the lease asks whether it may do without; one without any, who is done."""
    fact, asked_at_s = case.own.fact, case.remembered.asked_at_s
    if fact.busy:
        members = lease_deadline.peers_of(fact, case.header, case.roster) if case.terms.hold else ()
    else:
        members = members_to_ask(fact, case.header, case.roster)
    if not members or case.is_heard:
        return
    if asked_at_s is None or case.clock.now_s >= asked_at_s + case.terms.times.hold_s / QUESTIONS_A_HOLD:
        incarnation = fact.incarnation
        node, boot = fact.node, fact.boot
        question = membership.PeerQuestion(node=node, boot=boot, incarnation=incarnation, status=fact.word)
        yield membership.AskPeers(question=question, members=members)
