"""What a spare does, in words: it has no seat in the plan, and waits for one.

Pure, and taken from the state: a node that was lost and comes back is a spare like any other.
"""

from faultrun.core.standpoint import Standpoint
from faultrun.model.roster import PlanPhase

_NAMED = 8


def spare_words(case: Standpoint) -> str:
    """Who trains while this node waits; empty while it has a seat, ends, or no plan is known.

    A supervisor whose node's seat belongs to the one before it is no spare: it waits for that one's end.
    """
    fact, roster = case.own.fact, case.roster
    over = case.header is None or case.header.phase is PlanPhase.FINISHED
    if over or roster is None or case.known.own is None or roster.entry(fact.node) is not None:
        return ""
    if fact.status.busy or fact.stop is not None or fact.failure is not None:
        return ""
    names = [entry.node for entry in roster.entries]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    word = "node" if len(names) == 1 else "nodes"
    trains = "trains" if len(names) == 1 else "train"
    return f"{word} {' '.join(names[:_NAMED])}{more} {trains}; takes the place of a lost one"
