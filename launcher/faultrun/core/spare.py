"""What a spare does, in words: it has no seat in the plan, and waits for one.

Pure, and taken from the state: a node that was lost and comes back is a spare like any other.
"""

from faultrun.core.humanize import node_names
from faultrun.nodes.protocol.judge_input import Standpoint
from faultrun.nodes.protocol.peer_completion import is_spare
from faultrun.nodes.protocol.waiting_nodes import who_is_aside
from faultrun.nodes.values.roster import PlanPhase


def spare_words(case: Standpoint) -> str:
    """Who trains while this node waits; empty while it has a seat, ends, or no plan is known.

    A supervisor whose node's seat belongs to the one before it is no spare: it waits for that one's end.
    """
    fact, roster = case.own.fact, case.roster
    over = case.header is None or case.header.phase is PlanPhase.FINISHED
    if over or roster is None or case.known.own is None or not is_spare(fact, roster):
        return ""
    names = [entry.node for entry in roster.entries]
    trains = "trains" if len(names) == 1 else "train"
    aside = who_is_aside(case)
    if aside is not None and not fact.usable:
        elastic = case.rules.elastic
        until = "until --health_check passes" if elastic and elastic.health_check else "as long as others can"
        return f"{node_names(names)} {trains}; this node gets no rank {until}: {aside.why}"
    return f"{node_names(names)} {trains}; takes the place of a lost one"
