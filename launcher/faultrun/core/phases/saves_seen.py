"""What was seen of saves and loads: it is remembered, and decides nothing at once. Called by ``decide``."""

from dataclasses import replace

from faultrun.core.phases import node_statement
from faultrun.core.plan.joint_saves import opened_first
from faultrun.errors import assert_never
from faultrun.model.observed.dying_gasp import SaveSeen
from faultrun.model.observed.saves import CheckpointsOpened, FirstSaveTold, SavesEvent, SavesObserved
from faultrun.model.run import RunState, Step

_MOST_OPENED = 32


def noted(state: RunState, event: SaveSeen | SavesEvent) -> Step:
    """The state that knows of it."""
    match event:
        case FirstSaveTold():
            return Step(state=state, why="what would be handed over")
        case CheckpointsOpened() | SavesObserved() if event.incarnation != state.incarnation:
            return Step(state=state, why="seen in another life")
        case CheckpointsOpened(paths=paths):
            opened = tuple(dict.fromkeys((*(state.life.opened or ()), *paths)))[:_MOST_OPENED]
            if len(state.seats.nodes) > 1:
                opened = opened_first(opened, state.life.point)
            life = replace(state.life, opened=opened)
            return Step(state=replace(state, life=life), why="read before the first step")
        case SavesObserved(seen=seen):
            learned = replace(state, run=replace(state.run, seen=seen))
            return node_statement.saves_known(learned, state, event.at_s, "what a save of it is made of")
        case SaveSeen(path=path):
            known = replace(state.run, known_save=state.run.known_save or path)
            why = "a checkpoint of this run lies there: it will never begin at zero"
            return node_statement.saves_known(replace(state, run=known), state, event.at_s, why)
        case _:
            assert_never(event)
