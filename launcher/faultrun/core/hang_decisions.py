"""What is decided about a silence: look, warn, wake, and at last replace.

Called by ``decide`` only. Suspicion kills nobody; ``HangDetected`` says that a
limit is over, or that a rank was woken in vain.
"""

from dataclasses import replace

from faultrun.core.diagnose import hang_incident
from faultrun.core.drain import open_drain
from faultrun.core.span import span
from faultrun.model.actions import Inspect, Wake
from faultrun.model.hang import Activity, HangDetected, HangSuspected, HangWarned, PauseOver
from faultrun.model.run import RunState, Step


def look_into(state: RunState, event: HangSuspected) -> Step:
    """Nothing is killed on suspicion: the processes are looked at, and their stacks kept, first."""
    suspicion = event.suspicion
    inspect = Inspect(incarnation=state.incarnation, number=state.incidents + 1, suspicion=suspicion)
    who = " ".join(str(rank) for rank in suspicion.behind)
    return Step(state=state, actions=(inspect,), why=f"rank {who} silent for {suspicion.silent_s:.1f} s")


def warn(state: RunState, event: HangWarned) -> Step:
    """It may be a pause: people are told, and a rank that somebody has stopped is woken."""
    if event.stance is Activity.STOPPED:
        why = f"rank {event.rank} is stopped: it is woken (SIGCONT), and replaced if it does not go on"
        return Step(state=state, actions=(Wake(ranks=frozenset({event.rank})),), why=why)
    why = f"rank {event.rank} may hang; it is replaced after {span(event.acts_s)} if it does not go on"
    return Step(state=state, why=why)


def goes_on(state: RunState, event: PauseOver) -> Step:
    """It was a pause. The longest raises the limits, in later lives too."""
    before = state.run.patience
    patience = replace(before, longest_s=max(before.longest_s, event.longest_s))
    longest = span(patience.longest_s)
    why = f"rank {event.rank} goes on after {span(event.paused_s)}; longest pause so far {longest}"
    return Step(state=replace(state, run=replace(state.run, patience=patience)), why=why)


def hang(state: RunState, event: HangDetected) -> Step:
    """A rank hangs: everybody is asked to save.

    It too: where each rank holds a shard of its own, nobody else can save its
    part, and a thread of it may still be able to. It is killed with the rest
    once every replica group has saved, at the end of the window at the latest.
    Without a proof the next life gets more time at this step.
    """
    incident = hang_incident(state, event)
    if not event.proved:
        step = -1 if event.step is None else event.step
        patience = replace(state.run.patience, hung_step=step, hung_limit_s=event.limit_s)
        state = replace(state, run=replace(state.run, patience=patience))
    return open_drain(state, incident, f"rank {event.rank} hangs: {event.why}")


def warning(event: HangWarned) -> str:
    """The warning in words: who, since when, where, and what comes of it."""
    step = "" if event.step is None else f" after step {event.step}"
    where = f"; at {event.where}" if event.where else ""
    until = f"no rank is replaced before {span(event.acts_s)}"
    if event.stance is Activity.STOPPED:
        until = "it is woken, and replaced if it does not go on"
    stacks = f"; stacks in {event.folder}" if event.folder else ""
    return f"rank {event.rank} may hang{step}: {event.why}{where}; {until}{stacks}"
