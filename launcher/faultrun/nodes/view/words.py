"""How a run of several nodes stands, in words: the whole of it, one line, and where its files are. Pure."""

from collections.abc import Iterator
from pathlib import PurePath

from faultrun.core.humanize import rank_names, several
from faultrun.model.incident import Cause
from faultrun.model.plan import Reason
from faultrun.model.printable import printable
from faultrun.model.topology import NodeId, node_folder
from faultrun.nodes.view.status import ALIVE, LEFT, SPARE, NodesStatus, NodeState, RestartsTold
from faultrun.observe.card.card import duration, headline

COLUMNS_OF_NODES = ("node", "state", "says", "ranks", "address", "boot")
_MOST_NODES = 24
_MOST_FOLDERS = 8
_BEGAN = {
    Reason.FIRST: "at the start",
    Reason.FAULT: "after a fault",
    Reason.CONTINUED: "after a stop, or the loss of a node",
}
_BEGAN_AFTER = {
    Cause.GROWTH: "to be more",
    Cause.PLATFORM: "as the platform asked",
    Cause.RENDEZVOUS: "to change the scheduler",
    Cause.NODE: "after the loss of a node",
    Cause.FENCE: "after a node was fenced",
}


def lines(status: NodesStatus) -> Iterator[str]:
    """The whole status, a line each."""
    yield f"run {status.run_id}  {title(status)}"
    for name, text in facts(status):
        yield f"  {name:<11} {printable(text)}"
    shown = sorted(status.nodes, key=lambda one: one.state in (ALIVE, LEFT))[:_MOST_NODES]
    rows = [COLUMNS_OF_NODES, *(cells_of(one) for one in status.nodes if one in shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows if status.nodes else ():
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
    if len(shown) < len(status.nodes):
        yield f"  {several(len(status.nodes) - len(shown), 'more node')}   (--json has all)"


def where_files_are(status: NodesStatus) -> Iterator[str]:
    """The folders of nodes that had ranks last, below the ``--log_dir`` that each was started with."""
    for one in status.members[:_MOST_FOLDERS]:
        folder = PurePath(status.log_dir or "LOG_DIR") / node_folder(NodeId(one.node))
        yield printable(f"node {one.node} ({one.address}): {folder}")
    more = len(status.members) - _MOST_FOLDERS
    if more > 0:
        yield printable(f"{several(more, 'more node')}: {status.log_dir or 'LOG_DIR'}/node_NAME")


def title(status: NodesStatus) -> str:
    """How it stands, in a few words."""
    if status.ended is not None:
        why = printable(status.ended.why.partition("\n")[0])
        return f"ended with exit code {status.ended.exit_code}: {why}"
    if status.incarnation is None:
        return f"{status.phase}  {several(len(status.nodes), 'node')} here, no plan yet"
    size = f"{several(status.world_size, 'rank')} on {several(len(status.members), 'node')}"
    return f"{status.phase}  incarnation {status.incarnation}  {size}"


def facts(status: NodesStatus) -> Iterator[tuple[str, str]]:
    """What is worth a line, by name."""
    if status.ended is None:
        if not any(one.says for one in status.nodes):
            yield "supervisors", "none is here; the same command on each node continues the run"
        yield "coordinator", status.coordinator or "none yet"
    if status.waits:
        yield "waits for", status.waits
    if status.left_out:
        yield "nodes", status.left_out
    for alarm in status.alarms:
        yield "over", f"incarnation {alarm.incarnation}: {alarm.why.partition(chr(10))[0]}"
    if status.began:
        stayed = f"; {rank_names(status.kept)} stayed" if status.kept else ""
        yield "began", _began(status) + stayed
    if status.resumed_from:
        step = "" if status.resumed_step is None else f"step {status.resumed_step:,}   "
        yield "resumed", step + status.resumed_from
    if status.workers_at:
        yield "workers at", status.workers_at
    spent = status.spent
    if status.incarnation is not None:
        yield "restarts", _restarts(spent)
        yield "incidents", f"{spent.incidents}"
    if status.card is not None:
        yield "newest", headline(status.card)
    yield "etcd", ", ".join(status.etcd)


def _began(status: NodesStatus) -> str:
    told = _BEGAN_AFTER.get(Cause(status.began_after)) if status.began_after else None
    return told or _BEGAN[Reason(status.began)]


def _restarts(spent: RestartsTold) -> str:
    if spent.allowed is None or spent.window_s is None:
        return f"{spent.restarts} so far; {spent.counted} of them count against --max_restarts"
    past = "" if spent.high_step is None else f" past step {spent.high_step:,}"
    back = f"; all again once training is{past or ' further'}" if spent.left != spent.allowed else ""
    window = duration(spent.window_s)
    return f"{spent.restarts} so far; {spent.left} of {spent.allowed} left in {window}{back}"


def brief(status: NodesStatus) -> str:
    """The status in one line."""
    here = sum(one.state == ALIVE for one in status.nodes)
    said = f"{status.run_id}  {title(status)}"
    parts = [] if status.ended is not None else [f"{here} of {len(status.members)} alive"]
    spares = sum(one.state == SPARE for one in status.nodes)
    parts += [several(spares, "spare")] if spares else []
    parts += [f"waits for {status.waits}"] if status.waits else []
    parts += [several(status.spent.incidents, "incident")] if status.spent.incidents else []
    return printable("  ".join((said, *parts)))


def cells_of(one: NodeState) -> tuple[str, ...]:
    """One row, by ``COLUMNS_OF_NODES``."""
    ranks = "" if one.ranks is None else f"{one.ranks[0]}-{one.ranks[1]}"
    says = one.says if not one.stopping else f"{one.says}, told to stop"
    if one.failure or one.lacks:
        says += f": {(one.failure or one.lacks).partition(chr(10))[0]}"
    if one.hangs:
        says += f": {one.hangs}"
    return tuple(map(printable, (one.node, one.state, says, ranks, one.address, one.boot[:8])))
