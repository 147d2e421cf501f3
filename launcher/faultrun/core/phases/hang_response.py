"""What is decided about a silence: look, warn, wake, and at last replace.

Called by ``decide`` only. Suspicion kills no rank; ``HangDetected`` says that a
limit is over, or that a rank was woken in vain.
"""

from dataclasses import replace

from faultrun.core.diagnosis.diagnose import hang_incident
from faultrun.core.humanize import span
from faultrun.core.phases import replace_ranks
from faultrun.core.phases.drain import open_drain
from faultrun.core.phases.may_stay import hang_refusal, unkept
from faultrun.core.phases.node_statement import publish
from faultrun.model.actions import Action, Inspect, StartTimer, TellNodes, Wake
from faultrun.model.events import Timer
from faultrun.model.observed.hang import (
    Activity,
    HangDetected,
    HangDismissed,
    HangElsewhere,
    HangSuspected,
    HangWarned,
    NodeSpoke,
    PauseOver,
    Standstill,
    Suspicion,
)
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.run import RunState, Step

_FOR_NOTHING = "no rank is replaced for what its log says (--hang_signal=log, or the SDK)"

ANSWERS_S = 10.0
"""Other nodes have looked at their ranks by then; a look takes some seconds at most."""

_NOBODY = (Activity.WAITING, Activity.ENDED)
"""All wait in a collective: for no rank that was found, or for a rank that has left."""


def look_into(state: RunState, event: HangSuspected) -> Step:
    """Nothing is killed on suspicion: the processes are looked at, and their stacks kept, first."""
    suspicion = event.suspicion
    who = " ".join(str(rank) for rank in suspicion.behind)
    state = _standing(state, replace(state.life.standstill, suspicion=suspicion, asked=False))
    why = f"rank {who} silent for {suspicion.silent_s:.1f} s"
    return Step(state=state, actions=(_look(state, suspicion),), why=why)


def works(state: RunState, event: HangDismissed) -> Step:
    """A rank works. Another node that waits for us hears it."""
    state, told = _no_hang(state, event.why)
    return Step(state=state, actions=told, why=f"no hang: {event.why}")


def warn(state: RunState, event: HangWarned) -> Step:
    """It may be a pause: people are told, and a rank that was stopped from outside is woken."""
    told: tuple[Action, ...] = ()
    state, shown = _shown(state, event.at_s, warning(event))
    if event.stance is not Activity.WAITING:
        state, told = _no_hang(state, f"rank {event.rank} {event.why}")
    if event.stance is Activity.STOPPED:
        why = f"rank {event.rank} is stopped: it is woken (SIGCONT){_replaced(event)}"
        return Step(state=state, actions=(Wake(ranks=frozenset({event.rank})), *told, *shown), why=why)
    after = f"it is replaced after {span(event.acts_s)} if it does not go on"
    why = f"rank {event.rank} may hang; {after if event.acts_s else _FOR_NOTHING}"
    return Step(state=state, actions=(*told, *shown), why=why)


def goes_on(state: RunState, event: PauseOver) -> Step:
    """It was a pause. The longest raises the limits, in later lives too."""
    if event.all_stood:
        why = f"all processes stood still for {span(event.paused_s)}, the supervisor too"
        return Step(state=state, why=f"{why}: that is no time of training")
    before = state.run.patience
    patience = replace(before, longest_s=max(before.longest_s, event.longest_s))
    longest = span(patience.longest_s)
    why = f"rank {event.rank} goes on after {span(event.paused_s)}; longest pause so far {longest}"
    state, shown = _shown(replace(state, run=replace(state.run, patience=patience)), event.at_s, "")
    return Step(state=state, actions=shown, why=why)


def hang(state: RunState, event: HangDetected) -> Step:
    """A rank hangs: it alone is replaced where the others can stay, else all are asked to save.

    The hung one is asked, too: where each rank holds a shard of its own, no other can save its part, and a
    thread of it may still be able to. It is killed with the rest once every replica group has saved, at the
    end of the window at the latest. Without a proof the next life gets more time at this step.
    """
    incident = hang_incident(state, event)
    if not event.proved:
        step = -1 if event.step is None else event.step
        patience = replace(state.run.patience, hung_step=step, hung_limit_s=event.limit_s)
        state = replace(state, run=replace(state.run, patience=patience))
    if not (against := _not_alone(state, event)):
        return replace_ranks.hung(state, incident, event.rank)
    incident = replace(incident, unkept=unkept(state, event.rank, why=against))
    return open_drain(state, incident, f"rank {event.rank} hangs: {event.why}")


def _not_alone(state: RunState, event: HangDetected) -> str:
    """Why all begin anew; empty if the others can stay."""
    if event.stance in _NOBODY:
        return "no rank was found that the others wait for"
    return hang_refusal(state, event.rank)


def ask(state: RunState, event: HangElsewhere) -> Step:
    """Another node may know who is stuck, or at work: nothing is ended here before it could say so.

    Nothing is asked if one of them has just asked, which all have heard, or has said that its ranks work.
    """
    known = state.life.standstill
    heard = known.heard if known.heard and event.at_s - known.heard.at_s < ANSWERS_S else None
    if heard is not None and heard.works:
        return Step(state=_no_hang(state, "")[0], why=_not_stuck(heard))
    state = _standing(state, replace(known, asked=True))
    timer = StartTimer(timer=Timer.ANSWERS, at_s=event.at_s + ANSWERS_S, incarnation=state.incarnation)
    ask = () if heard is not None else (TellNodes(incarnation=state.incarnation),)
    why = f"rank {event.rank} waits for ranks of other nodes, which have {ANSWERS_S:g} s to look at them"
    return Step(state=state, actions=(*ask, timer), why=why)


def other_node(state: RunState, event: NodeSpoke) -> Step:
    """Another node asks what our ranks do, or answers that one of its own works."""
    known = replace(state.life.standstill, heard=event)
    if not event.works:
        state = _standing(state, replace(known, owes=True))
        return Step(state=state, why=f"all ranks of node {event.node} wait: ours are looked at")
    state = _standing(state, known)
    return Step(state=_no_hang(state, "")[0] if known.asked else state, why=_not_stuck(event))


def nobody_answers(state: RunState) -> Step:
    """No other node found a rank stuck or at work: if ours still wait, they are what there is to tell of."""
    if not (known := state.life.standstill).asked or known.suspicion is None:
        return Step(state=state, why="what other nodes were asked is of no interest any more")
    look = _look(state, replace(known.suspicion, asked=True))
    return Step(state=state, actions=(look,), why="no other node tells of a rank that is stuck, or works")


def _not_stuck(event: NodeSpoke) -> str:
    return f"no hang: node {event.node}: {event.works}"


def _no_hang(state: RunState, why: str) -> tuple[RunState, tuple[Action, ...]]:
    """The silence is no longer looked into; an answer that is owed is given."""
    known = state.life.standstill
    told = (TellNodes(incarnation=state.incarnation, works=why),) if known.owes and why else ()
    known = replace(known, suspicion=None, asked=False, owes=known.owes and not why)
    return _standing(state, known), told


def _shown(state: RunState, now_s: float, text: str) -> tuple[RunState, tuple[Action, ...]]:
    """The warning as ``status`` shows it of several nodes; on one node its journal is there to be read."""
    if text == state.life.standstill.warning or len(state.seats.nodes) == 1:
        return state, ()
    state = _standing(state, replace(state.life.standstill, warning=text))
    return state, (publish(state, now_s, NodeStatus.RUNNING),)


def _standing(state: RunState, known: Standstill) -> RunState:
    return replace(state, life=replace(state.life, standstill=known))


def _look(state: RunState, suspicion: Suspicion) -> Inspect:
    return Inspect(incarnation=state.incarnation, number=state.incidents + 1, suspicion=suspicion)


def _replaced(event: HangWarned) -> str:
    return ", and replaced if it does not go on" if event.acts_s else ""


def warning(event: HangWarned) -> str:
    """The warning in words: who, since when, where, and what comes of it."""
    step = "" if event.step is None else f" after step {event.step}"
    where = f"; at {event.where}" if event.where else ""
    until = f"no rank is replaced before {span(event.acts_s)}" if event.acts_s else _FOR_NOTHING
    if event.stance is Activity.STOPPED:
        until = f"it is woken{_replaced(event)}"
    stacks = f"; stacks in {event.folder}" if event.folder else ""
    return f"rank {event.rank} may hang{step}: {event.why}{where}; {until}{stacks}"
