"""How a run stands, in plain words for any shell: all of it, one line, and where its files are. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from faultrun.core.humanize import rank_names, several, span
from faultrun.model.incident import Cause
from faultrun.model.plan import Reason
from faultrun.model.printable import printable
from faultrun.model.topology import NodeId, node_folder
from faultrun.observe.card.card import duration
from faultrun.observe.status.status import (
    ALIVE,
    LEFT,
    SPARE,
    AgreedState,
    NodeRow,
    RankState,
    RunStatus,
    Supervised,
)

COLUMNS = {
    "rank": 4, "pid": 7, "state": 9, "step": 8, "steps/s": 7, "last step": 9, "memory": 9, "cpu": 5, "": 0,
}  # fmt: skip
"""Columns of a rank's row and the width that is kept from look to look; the last says how it ended."""
COLUMNS_OF_NODES = dict.fromkeys(("node", "state", "says", "ranks", "address", "boot"), 0)
LEFT_ALIGNED = ("state", "", *COLUMNS_OF_NODES)
_MOST_ROWS, _MOST_FOLDERS = 24, 8
_MIB = 1 << 20
_ORDINARY = ("training", "ended")
_SUPERVISED = {
    Supervised.RUNNING: "",
    Supervised.ENDED: "",
    Supervised.GONE: "no supervisor is running; the same command{} continues the run",
    Supervised.ELSEWHERE: "its supervisor is on another machine; this is what its files say",
}
_BEGAN = {
    Reason.FIRST: "at the start",
    Reason.FAULT: "after a fault",
    Reason.CONTINUED: "after a stop, or the loss of a node",
}
_BEGAN_AFTER = {
    Cause.GROWTH: "to be more",
    Cause.UNHEALED: "to be fewer",
    Cause.PLATFORM: "as the platform asked",
    Cause.RENDEZVOUS: "to change the scheduler",
    Cause.NODE: "after the loss of a node",
    Cause.FENCE: "after a node was fenced",
}


def lines(status: RunStatus, *, most_rows: int = _MOST_ROWS) -> Iterator[str]:
    """The whole status, a line each."""
    yield f"run {status.run_id}  {title(status)}"
    for name, text in facts(status):
        yield f"  {name:<11} {text}"
    shown = table(status, most_rows)
    rows = [tuple(shown.columns), *shown.rows] if shown.rows else []
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        columns = zip(row, shown.columns.items(), widths, strict=True)
        cells = [_aligned(cell, name, max(least, width)) for cell, (name, least), width in columns]
        yield f"  {'  '.join(cells)}".rstrip()
    if shown.left_out:
        yield f"  {shown.left_out}"


def _aligned(cell: str, column: str, width: int) -> str:
    return cell.ljust(width) if column in LEFT_ALIGNED else cell.rjust(width)


def brief(status: RunStatus) -> str:
    """One line: for a pipe that follows the run."""
    words = [status.run_id] if status.agreed is not None else []
    if status.ended is not None:
        return printable("  ".join((*words, title(status))))
    if status.agreed is not None:
        words.append(title(status))
        words.append(f"{sum(one.state == ALIVE for one in status.nodes)} of {len(status.members)} alive")
        spares = sum(one.state == SPARE for one in status.nodes)
        words += [several(spares, "spare")] if spares else []
        words += [f"waits for {status.agreed.waits}"] if status.agreed.waits else []
        words += [several(status.spent.incidents, "incident")] if status.spent.incidents else []
    else:
        words += [status.phase, f"incarnation {status.incarnation}", f"{status.up}/{status.here} ranks"]
        words += [f"step {status.step:,}"] if status.step is not None else []
        words += [f"{status.rate:.3g} steps/s"] if status.rate is not None else []
        words.append(f"{status.spent.restarts} restarts")
    words += ["supervisor gone"] if status.supervisor is Supervised.GONE else []
    return printable("  ".join(words))


def title(status: RunStatus) -> str:
    """Phase, incarnation, how many are up and for how long."""
    long = "" if status.elapsed_s is None else span(status.elapsed_s)
    phase = f"was {status.phase}" if status.supervisor is Supervised.GONE else status.phase
    if status.ended is not None:
        why = printable(status.ended.why.partition("\n")[0])
        return f"ended with exit code {status.ended.exit_code}{f' after {long}' if long else ''}: {why}"
    if status.agreed is None:
        beyond = f" here, {status.world_size:,} in all" if status.world_size > status.here else ""
        size = f"{status.up} of {status.here} ranks up{beyond}"
    elif status.incarnation < 0:
        return f"{phase}  {several(len(status.nodes), 'node')} here, no plan yet"
    else:
        size = f"{several(status.world_size, 'rank')} on {several(len(status.members), 'node')}"
    return f"{phase}  incarnation {status.incarnation}  {size}{f'  for {long}' if long else ''}"


def facts(status: RunStatus) -> Iterator[tuple[str, str]]:
    """What is worth a line, by name; what is unknown has none."""
    return ((name, printable(text)) for name, text in _facts(status))


def _facts(status: RunStatus) -> Iterator[tuple[str, str]]:
    agreed, last = status.agreed, status.last_incident
    if _SUPERVISED[status.supervisor]:
        yield "supervisor", _SUPERVISED[status.supervisor].format("" if agreed is None else " on each node")
    if status.suspected:
        yield "a hang?", status.suspected
    if status.phase != "running" and status.ended is None and status.why:
        yield "now", status.why.splitlines()[0]
    if agreed is not None:
        yield from _of_nodes(status, agreed)
    if status.workers:
        yield "workers", status.workers
    if status.missing:
        yield "missing", status.missing
    if status.step is not None:
        yield "step", _steps(status, status.step)
    if status.incarnation >= 0 or agreed is None:
        yield "restarts", _restarts(status)
    if agreed is not None and status.incarnation >= 0:
        yield "incidents", f"{status.spent.incidents}"
    if last is not None:
        ago = "" if last.age_s is None else f"   {span(last.age_s)} ago"
        yield "newest" if last.ordered else "last fault", last.headline + ago
    if agreed is None:
        yield from _resumed(status)
        yield from _of_files(status)
    else:
        yield "etcd", ", ".join(agreed.etcd)


def _of_nodes(status: RunStatus, agreed: AgreedState) -> Iterator[tuple[str, str]]:
    if status.ended is None:
        yield "coordinator", agreed.coordinator or "none yet"
    if agreed.waits:
        yield "waits for", agreed.waits
    for alarm in agreed.alarms:
        yield "over", f"incarnation {alarm.incarnation}: {alarm.why.partition(chr(10))[0]}"
    if agreed.began:
        told = _BEGAN_AFTER.get(Cause(agreed.began_after)) if agreed.began_after else None
        stayed = f"; {rank_names(agreed.kept)} stayed" if agreed.kept else ""
        yield "began", (told or _BEGAN[Reason(agreed.began)]) + stayed
    yield from _resumed(status)
    if agreed.workers_at:
        yield "workers at", agreed.workers_at


def _resumed(status: RunStatus) -> Iterator[tuple[str, str]]:
    if status.resumed_from:
        step = "" if status.resumed_step is None else f"step {status.resumed_step:,}   "
        yield "resumed", step + status.resumed_from


def _steps(status: RunStatus, step: int) -> str:
    rate = f"   {status.rate:.3g} steps/s" if status.rate is not None else ""
    behind = status.slowest_step is not None and status.slowest_step < step
    slowest = f"   (slowest {status.slowest_step:,})" if behind else ""
    by_log = "   by the logs" if any(rank.by_log for rank in status.ranks) else ""
    return f"{step:,}{by_log}{slowest}{rate}"


def _restarts(status: RunStatus) -> str:
    """How many so far, and of the budget what is left, and when all of it is, unless the outlook says so."""
    spent = status.spent
    if status.ended is not None:
        return f"{spent.restarts}"
    if spent.allowed is None or spent.window_s is None:
        return f"{spent.restarts} so far; {spent.counted} of them count against --max_restarts"
    left = f"{spent.restarts} so far; {spent.left} of {spent.allowed} left in {duration(spent.window_s)}"
    if spent.left == spent.allowed or status.outlook is not None:
        return left
    past = " further" if spent.high_step is None else f" past step {spent.high_step:,}"
    return f"{left}; all again once training is{past}"


def _of_files(status: RunStatus) -> Iterator[tuple[str, str]]:
    if (newest := status.last_checkpoint) is not None:
        step = "" if newest.step is None else f"step {newest.step:,}   "
        yield "checkpoint", f"{step}{span(newest.age_s)} old, not verified   {newest.path}"
    if status.first_save:
        yield "first save", status.first_save.removeprefix("first save: ")
    if status.outlook is not None:
        yield "next fault", status.outlook.text
    if status.savings is not None and status.savings["text"]:
        yield "saved", str(status.savings["text"]).removeprefix("saved ")
    if status.standbys is not None and status.standbys.words():
        yield "standbys", status.standbys.words()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusTable:
    """Rows under ``columns``, by name with the least width, and the state of each; ``left_out`` in words."""

    columns: Mapping[str, int]
    rows: list[tuple[str, ...]]
    states: list[str]
    left_out: str


def table(status: RunStatus, most: int) -> StatusTable:
    """A row for each node of several, else for each rank; of many those that are not well come first."""
    if status.nodes:
        nodes, left_out = _chosen_nodes(status.nodes, most)
        columns, rows = COLUMNS_OF_NODES, [*map(_cells_of_node, nodes)]
        return StatusTable(columns=columns, rows=rows, states=[one.state for one in nodes], left_out=left_out)
    ranks, left_out = chosen(status.ranks, most)
    rows, states = [*map(_cells, ranks)], [one.state for one in ranks]
    return StatusTable(columns=COLUMNS, rows=rows, states=states, left_out=left_out)


def chosen(ranks: Sequence[RankState], most: int) -> tuple[list[RankState], str]:
    """All of a few; of many those that are not well, then those furthest behind, and a word on the others."""
    if len(ranks) <= most:
        return list(ranks), ""
    order = sorted(
        ranks, key=lambda one: (one.state in _ORDINARY, one.step if one.step is not None else -1, one.rank)
    )
    shown, others = order[:most], order[most:]
    steps = [one.step for one in others if one.step is not None]
    between = f", steps {min(steps):,} to {max(steps):,}" if steps else ""
    states = ", ".join(sorted({one.state for one in others}))
    word = f"{len(others)} more: {states}{between}   (--json has all)"
    return sorted(shown, key=lambda one: one.rank), word


def _chosen_nodes(nodes: Sequence[NodeRow], most: int) -> tuple[list[NodeRow], str]:
    """All of a few; of many those that are not well first, and a word on how many more there are."""
    kept = sorted(nodes, key=lambda one: one.state in (ALIVE, LEFT))[:most]
    more = len(nodes) - len(kept)
    word = f"{several(more, 'more node')}   (--json has all)" if more else ""
    return [one for one in nodes if one in kept], word


def _cells(rank: RankState) -> tuple[str, ...]:
    """One rank under ``COLUMNS``."""
    return (
        str(rank.rank),
        "" if rank.pid is None else str(rank.pid),
        rank.doing if rank.state == "training" and rank.doing not in ("", "computing") else rank.state,
        "" if rank.step is None else f"{rank.step:,}",
        "" if rank.rate is None else f"{rank.rate:.3g}",
        # A healthy rank's age is a flicker of milliseconds, which no reader sees.
        "" if (age_s := rank.step_age_s) is None else "now" if age_s < 1 else span(age_s),
        "" if not rank.rss_bytes else f"{rank.rss_bytes / _MIB:,.0f} MiB",
        "" if rank.cpu is None else f"{rank.cpu:.0%}",
        rank.what,
    )


def _cells_of_node(one: NodeRow) -> tuple[str, ...]:
    """One node under ``COLUMNS_OF_NODES``."""
    ranks = "" if one.ranks is None else f"{one.ranks[0]}-{one.ranks[1]}"
    says = one.says if not one.stopping else f"{one.says}, told to stop"
    if one.failure or one.lacks:
        says += f": {(one.failure or one.lacks).partition(chr(10))[0]}"
    if one.hangs:
        says += f": {one.hangs}"
    return tuple(map(printable, (one.node, one.state, says, ranks, one.address, one.boot[:8])))


def where_files_are(status: RunStatus) -> Iterator[str]:
    """The folders of nodes that had ranks last, below the ``--log_dir`` that each was started with."""
    for one in status.members[:_MOST_FOLDERS]:
        folder = PurePath(status.log_dir or "LOG_DIR") / node_folder(NodeId(one.node))
        yield printable(f"node {one.node} ({one.address}): {folder}")
    if (more := len(status.members) - _MOST_FOLDERS) > 0:
        yield printable(f"{several(more, 'more node')}: {status.log_dir or 'LOG_DIR'}/node_NAME")
