"""What the agreed state means for this node's supervisor.

Pure, and taken from the state, never from how it came about: a node that looks late sees the same.
"""

from collections.abc import Iterator
from dataclasses import replace

from faultrun.core.plan.standing import is_kept
from faultrun.model.events import GoGiven, NodesEvent, PlanAdopted, RunFinished
from faultrun.model.observed.agreement import IncarnationOver, LookAgain
from faultrun.model.observed.node_fact import NodeFact, NodeReady, NodeReplacing
from faultrun.model.plan import Plan
from faultrun.nodes.values.membership import Fence, KnownKeys
from faultrun.nodes.values.roster import PlanHeader, PlanPhase, Roster


def news_for_supervisor(
    fact: NodeFact,
    known: KnownKeys,
    header: PlanHeader,
    roster: Roster | None,
    body: Plan | None,
    run_s: float,
    run_ahead_s: float = 0.0,
) -> Iterator[NodesEvent | Fence]:
    """What the supervisor of this node, which stands where ``fact`` says, has to be told.

    ``run_s`` is its own time; that of the run, in which plans are written, is ``run_ahead_s`` more.
    """
    if header.phase is PlanPhase.FINISHED:
        yield _end(fact, header, run_s)
        return
    plan = roster.completes(body) if roster is not None and body is not None else None
    if plan is None and isinstance(fact.status, NodeReplacing) and header.incarnation > fact.incarnation:
        return  # it is unknown yet whether it is the one that survivors here wait for
    if plan is not None and is_kept(plan, fact):
        plan = replace(plan, start_at_s=plan.start_at_s - run_ahead_s)
        yield PlanAdopted(at_s=run_s, incarnation=plan.incarnation, plan=plan)
    elif fact.busy:
        yield from _to_the_busy(fact, known, header, roster, run_s)
    elif fact.is_free:
        yield from _to_the_idle(fact, known, header, plan, run_s, run_ahead_s)


def _end(fact: NodeFact, header: PlanHeader, run_s: float) -> NodesEvent | Fence:
    if fact.busy:
        return Fence(incarnation=fact.incarnation, why="the run has ended without this node")
    life, code, why = fact.incarnation, header.exit_code, header.why
    stopped, stop = header.stopped, header.stop
    return RunFinished(at_s=run_s, incarnation=life, exit_code=code, why=why, stopped=stopped, stop=stop)


def _to_the_busy(
    fact: NodeFact, known: KnownKeys, header: PlanHeader, roster: Roster | None, run_s: float
) -> Iterator[NodesEvent | Fence]:
    """It is ready for an incarnation, or trains: that goes on, begins or ends."""
    life = fact.incarnation
    alarm = known.alarm(life)
    newer = header.incarnation > life
    if newer and roster is not None and not roster.has(fact.node, fact.boot):
        yield Fence(incarnation=life, why=f"incarnation {header.incarnation} is planned without this node")
    elif alarm is not None and not (alarm.stays and isinstance(fact.status, NodeReplacing)):
        why, node, stop, stays = alarm.why, alarm.node, alarm.stop, alarm.stays
        yield IncarnationOver(at_s=run_s, incarnation=life, why=why, node=node, stop=stop, stays=stays)
    elif newer or (header.incarnation == life and header.phase is PlanPhase.LOOK):
        yield IncarnationOver(at_s=run_s, incarnation=life, why="the other nodes have ended it")
    elif header.incarnation == life and header.phase is PlanPhase.GO and isinstance(fact.status, NodeReady):
        master_addr = header.master_addr
        yield GoGiven(at_s=run_s, incarnation=life, master_addr=master_addr, master_port=header.master_port)


def _to_the_idle(
    fact: NodeFact, known: KnownKeys, header: PlanHeader, plan: Plan | None, run_s: float, run_ahead_s: float
) -> Iterator[NodesEvent]:
    """It has no workers: it looks again, or prepares what is planned."""
    begins = plan is not None and plan.is_for(fact.node, fact.boot) and not plan.keeps_on(fact.node)
    if header.incarnation > fact.incarnation and plan is not None and begins:
        life, alarm = plan.incarnation, known.alarm(plan.incarnation)
        plan = replace(plan, start_at_s=plan.start_at_s - run_ahead_s)
        yield PlanAdopted(at_s=run_s, incarnation=life, plan=plan)
        if alarm is not None or header.phase is PlanPhase.LOOK:
            # The others wait until it has left this one, too: by its word, which names the incarnation.
            why = "the other nodes have ended it" if alarm is None else alarm.why
            stop = None if alarm is None else alarm.stop
            yield IncarnationOver(at_s=run_s, incarnation=life, why=why, stop=stop)
    elif header.phase is PlanPhase.LOOK and fact.resume.look < header.look:
        yield LookAgain(at_s=run_s, incarnation=fact.incarnation, number=header.look)
