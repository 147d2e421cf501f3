"""The transitions by which a world that shrank takes workers or nodes back. Nothing has failed.

Called by ``decide`` only. All save and begin anew; but for a place that was left empty while the others
train on, a newcomer comes in as for any empty place.
"""

from collections.abc import Collection
from dataclasses import replace

from faultrun.core.diagnosis.diagnose import new_incident
from faultrun.core.humanize import node_names, several
from faultrun.core.phases import drain
from faultrun.core.phases.node_statement import publish
from faultrun.core.phases.replace_ranks import heal_timer
from faultrun.model.incident import Cause
from faultrun.model.observed.elastic import NodesWaiting, SaveWhileNodesWait, SlotsUsable
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.run import RunState, Step


def begin(state: RunState, event: SlotsUsable) -> Step:
    """Slots are well: a newcomer may come to an empty place; else, right after a save, all begin anew."""
    ledger = None if state.plan is None else state.plan.slots
    if ledger is not None and (empty := {one.slot for one in ledger.empty}.intersection(event.slots)):
        return _may_be_taken(state, event, empty - {*state.life.usable})
    known = {(one.node, one.slot) for one in (() if ledger is None else ledger.bad)}
    if not (slots := tuple(sorted(slot for slot in event.slots if (event.node, slot) in known))):
        return Step(state=state, why="no such slot is set aside")
    if ledger is not None and ledger.stays_small:
        return Step(state=state, why=ledger.stays_small)
    if state.life.finished or state.life.rejoining:
        return Step(state=state, why="ranks come and go; another save will do")
    why = _well(slots)
    state = replace(state, life=replace(state.life, usable=slots))
    incident = new_incident(state, event.at_s, Cause.GROWTH, f"{why}: {several(len(slots), 'worker')} more")
    return drain.open_drain(state, incident, why)


def _may_be_taken(state: RunState, event: SlotsUsable, slots: set[int]) -> Step:
    """The places of these ``slots`` are healed as any that is empty, and from now on in the time for that."""
    if not slots:
        return Step(state=state, why="newcomers may take their places already")
    usable = tuple(sorted(slots.union(state.life.usable)))
    state = replace(state, life=replace(state.life, usable=usable, empty_since_s=event.at_s))
    return Step(state=state, actions=heal_timer(state), why=f"{_well(sorted(slots))}: a newcomer may come")


def _well(slots: Collection[int]) -> str:
    numbers = " ".join(map(str, slots))
    return f"slot {numbers} is well again" if len(slots) == 1 else f"slots {numbers} are well again"


def heard(state: RunState, event: NodesWaiting) -> Step:
    """Remember who could take a vacant seat; nothing is done before a save."""
    state = replace(state, life=replace(state.life, waiting=event.nodes))
    who = node_names(event.nodes)
    why = f"{who} may take a vacant place, at a save" if event.nodes else "no node waits"
    return Step(state=state, why=why)


def begin_with_nodes(state: RunState, event: SaveWhileNodesWait) -> Step:
    """Right after a save: have the workers of all nodes save and leave, and plan those of more nodes."""
    ledger, waiting = None if state.plan is None else state.plan.slots, state.life.waiting
    if ledger is None or not ledger.vacant or not waiting:
        return Step(state=state, why="no node waits for a place")
    if ledger.stays_small:
        return Step(state=state, why=ledger.stays_small)
    if state.life.finished or state.life.rejoining:
        return Step(state=state, why="ranks come and go; another save will do")
    why = f"{node_names(waiting)} {'is' if len(waiting) == 1 else 'are'} here"
    incident = new_incident(state, event.at_s, Cause.GROWTH, f"{why}: {several(len(waiting), 'node')} more")
    return drain.open_drain(state, incident, why)


def well(state: RunState, event: SlotsUsable) -> Step:
    """This node, which was set aside, is well again: let the others know."""
    if event.node != state.node or state.stop is not None or state.failure is not None:
        return Step(state=state, why="it changes nothing for this node")
    if state.life.usable == event.slots:
        return Step(state=state, why="the other nodes know that this one is well")
    state = replace(state, life=replace(state.life, usable=event.slots))
    stated = publish(state, event.at_s, NodeStatus.JOINED, state.run.look)
    return Step(state=state, actions=(stated,), why="this node is well again")
