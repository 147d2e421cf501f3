"""Whether the run ends where no node has workers: it was told to stop, a node cannot go on, or lacks a save.

Pure, over what the nodes stated.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from faultrun.core.plan.after_incident import NextStep, finished
from faultrun.errors import NoWholeCheckpoint
from faultrun.model.events import RunFinished
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.stop import STOP_EXIT_CODES, StopSource, meant_most
from faultrun.model.topology import NodeId, Topology


def ending(
    spoken: Sequence[NodeFact],
    seats: Topology | None,
    now_s: float,
    *,
    several: bool,
    exit_code_on_stop: int | None,
) -> RunFinished | None:
    """The end of the run, if the user asked for it or a node cannot go on.

    ``seats`` are those of the next incarnation, None where too few are there for one. Who has none in it may
    be unfit, or lack a checkpoint. ``several``: of the nodes of the run it is told which.
    """
    newest = max((fact.incarnation for fact in spoken), default=-1)
    who = [fact.node for fact in spoken] if seats is None else [seat.node for seat in seats.nodes]
    failing = [fact for fact in spoken if fact.failure is not None and not (seats and fact.unfit)]
    failed = failing[0].failure if failing else None
    lacking = next((one for one in spoken if one.resume.lacks and (seats is None or one.node in who)), None)
    stop = meant_most([fact.stop for fact in spoken if fact.stop is not None])
    if stop is not None and _all_stop(spoken):
        known = failed[1] if failed is not None else lacking.resume.lacks if lacking is not None else ""
        besides = f"; {known.splitlines()[0]}" if known else ""
        code, why = stop_exit_code(exit_code_on_stop, stop), f"stopped by {stop.value}{besides}"
        return finished(newest, now_s, code, why, stop=stop)
    if failed is not None:
        why = on_its_node(failing[0].node, failed[1]) if several else failed[1]
        return finished(newest, now_s, failed[0], why)
    if lacking is None:
        return None
    why = on_its_node(lacking.node, lacking.resume.lacks) if several else lacking.resume.lacks
    return wanting(newest, now_s, why, who)


def wanting(incarnation: int, now_s: float, why: str, nodes: Iterable[NodeId]) -> RunFinished:
    """The end for want of a checkpoint, by what these ``nodes`` saw when they looked."""
    return replace(finished(incarnation, now_s, NoWholeCheckpoint.exit_code, why), wanting=tuple(nodes))


def for_the_unfit(answer: NextStep, spoken: Sequence[NodeFact]) -> NextStep:
    """No worker has ended where none could be started: the run ends for what that node lacked."""
    unfit = next((fact for fact in spoken if fact.unfit), None)
    if unfit is None or unfit.failure is None or not isinstance(answer, RunFinished):
        return answer
    code, why = unfit.failure
    return replace(answer, exit_code=code, why=f"{on_its_node(unfit.node, why)}; {answer.why}")


def on_its_node(node: NodeId, why: str) -> str:
    """``why`` with the node whose disk, files or processes it is about: all nodes say it."""
    return why if f"node {node}" in why.partition("\n")[0] else f"node {node}: {why}"


def _all_stop(spoken: Sequence[NodeFact]) -> bool:
    """Whether the run is to end, and not only a node of it, whose place another may take."""
    stops = [fact.stop for fact in spoken]
    return None not in stops or any(stop is not None and stop.ends_the_run for stop in stops)


def stop_exit_code(wished: int | None, stop: StopSource) -> int:
    """What a run that was told to stop ends with; ``wished`` is the user's own."""
    # The platform places the job anew only if it failed, whatever a person wants to see after a stop.
    return wished if wished is not None and stop is not StopSource.PLATFORM else STOP_EXIT_CODES[stop]
