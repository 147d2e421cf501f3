"""The transition by which a world that shrank takes its workers back: all save, and begin anew.

Called by ``decide`` only. Nothing has failed, so nothing is charged.
"""

from dataclasses import replace

from faultrun.core import drain
from faultrun.core.diagnose import new_incident
from faultrun.core.span import several
from faultrun.model.elastic import SlotsUsable
from faultrun.model.incident import Cause
from faultrun.model.run import RunState, Step


def begin(state: RunState, event: SlotsUsable) -> Step:
    """Slots are well again, right after a save: have the workers save and leave, and plan more of them."""
    ledger = None if state.plan is None else state.plan.slots
    known = {(one.node, one.slot) for one in (() if ledger is None else ledger.bad)}
    slots = tuple(sorted(slot for slot in event.slots if (event.node, slot) in known))
    if not slots:
        return Step(state=state, why="no such slot is set aside")
    if ledger is not None and ledger.stays_small:
        return Step(state=state, why=ledger.stays_small)
    if state.life.finished or state.life.rejoining:
        return Step(state=state, why="ranks come and go; another save will do")
    numbers = " ".join(map(str, slots))
    why = f"slot {numbers} is well again" if len(slots) == 1 else f"slots {numbers} are well again"
    state = replace(state, life=replace(state.life, usable=slots))
    incident = new_incident(state, event.at_s, Cause.GROWTH, f"{why}: {several(len(slots), 'worker')} more")
    return drain.open_drain(state, incident, why)
