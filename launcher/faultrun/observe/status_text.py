"""The status in plain words: what a shell without a terminal, or without rich, shows."""

from collections.abc import Iterator, Sequence

from faultrun.core.span import span
from faultrun.model.printable import printable
from faultrun.observe.card import duration
from faultrun.observe.status_model import RankState, RunStatus, Supervisor

_MOST_RANKS = 24
_MIB = 1 << 20
_END = "\n"
_ORDINARY = ("training", "ended")

SUPERVISED = {
    Supervisor.RUNNING: "",
    Supervisor.ENDED: "",
    Supervisor.GONE: "its supervisor is gone; the same command goes on with the run",
    Supervisor.ELSEWHERE: "its supervisor is on another machine; this is what its files say",
}


def lines(status: RunStatus, *, most_ranks: int = _MOST_RANKS) -> Iterator[str]:
    """The whole status, a line each."""
    yield f"run {status.run_id}  {title(status)}"
    for name, text in facts(status):
        yield f"  {name:<11} {text}"
    shown, left_out = chosen(status.ranks, most_ranks)
    if shown:
        widths = "{:>6} {:>8}  {:<9} {:>9} {:>8} {:>10} {:>10} {:>6}  {}"
        yield widths.format(*COLUMNS, "").rstrip()
        for rank in shown:
            yield widths.format(*cells(rank), rank.what).rstrip()
    if left_out:
        yield f"  {left_out}"


COLUMNS = ("rank", "pid", "state", "step", "steps/s", "last step", "memory", "cpu")


def title(status: RunStatus) -> str:
    """Phase, incarnation, how many are up and for how long."""
    if status.ended is not None:
        code, why = status.ended
        return (
            f"ended with exit code {code} after {span(status.elapsed_s)}: {printable(why.partition(_END)[0])}"
        )
    up = f"{status.up} of {status.world_size} ranks up"
    return f"{status.phase}  incarnation {status.incarnation}  {up}  for {span(status.elapsed_s)}"


def facts(status: RunStatus) -> Iterator[tuple[str, str]]:
    """What is worth a line, by name; what nobody knows has none."""
    return ((name, printable(text)) for name, text in _facts(status))


def _facts(status: RunStatus) -> Iterator[tuple[str, str]]:
    if SUPERVISED[status.supervisor]:
        yield "supervisor", SUPERVISED[status.supervisor]
    if status.suspected:
        yield "a hang?", status.suspected
    if status.phase != "running" and status.ended is None and status.why:
        yield "now", status.why.splitlines()[0]
    if status.step is not None:
        rate = f"   {status.rate:.3g} steps/s" if status.rate is not None else ""
        behind = status.slowest_step is not None and status.slowest_step < status.step
        slowest = f"   (slowest {status.slowest_step:,})" if behind else ""
        yield "step", f"{status.step:,}{slowest}{rate}"
    left = f"{status.restarts_left} left in {duration(status.window_s)}"
    yield "restarts", f"{status.restarts} so far; {left}" if status.ended is None else f"{status.restarts}"
    if status.last_incident is not None:
        ago = "" if status.last_incident.age_s is None else f"   {span(status.last_incident.age_s)} ago"
        yield "last fault", status.last_incident.headline + ago
    if status.resumed_from:
        step = "" if status.resumed_step is None else f"step {status.resumed_step:,}   "
        yield "resumed", step + status.resumed_from
    newest = status.last_checkpoint
    if newest is not None:
        step = "" if newest.step is None else f"step {newest.step:,}   "
        yield "checkpoint", f"{step}{span(newest.age_s)} old, not verified   {newest.path}"
    if status.outlook is not None:
        yield "next fault", status.outlook.text


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
    return sorted(
        shown, key=lambda one: one.rank
    ), f"{len(others)} more: {states}{between}   (--json has all)"


def cells(rank: RankState) -> tuple[str, ...]:
    """One rank under ``COLUMNS``."""
    return (
        str(rank.rank),
        "" if rank.pid is None else str(rank.pid),
        rank.doing if rank.state == "training" and rank.doing not in ("", "computing") else rank.state,
        "" if rank.step is None else f"{rank.step:,}",
        "" if rank.rate is None else f"{rank.rate:.3g}",
        _age(rank.step_age_s),
        "" if not rank.rss_bytes else f"{rank.rss_bytes / _MIB:,.0f} MiB",
        "" if rank.cpu is None else f"{rank.cpu:.0%}",
    )


def _age(seconds: float | None) -> str:
    """A healthy rank's is a flicker of milliseconds, which nobody reads."""
    return "" if seconds is None else "now" if seconds < 1 else span(seconds)


def brief(status: RunStatus) -> str:
    """One line: for a pipe that follows the run."""
    if status.ended is not None:
        return title(status)
    words = [status.phase, f"incarnation {status.incarnation}", f"{status.up}/{status.world_size} ranks"]
    if status.step is not None:
        words.append(f"step {status.step:,}")
    if status.rate is not None:
        words.append(f"{status.rate:.3g} steps/s")
    words.append(f"{status.restarts} restarts")
    if status.supervisor is Supervisor.GONE:
        words.append("supervisor gone")
    return "  ".join(words)
