"""How a run stands at one moment, as ``faultrun status`` shows it: values, and plain words for any shell."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from faultrun.core.humanize import span
from faultrun.model.printable import printable
from faultrun.observe.card.card import duration

COLUMNS = ("rank", "pid", "state", "step", "steps/s", "last step", "memory", "cpu")
_MOST_RANKS = 24
_MIB = 1 << 20
_ORDINARY = ("training", "ended")


class Supervised(Enum):
    """Whether anybody looks after the run."""

    RUNNING = "running"
    GONE = "gone"  # it was killed: the same command goes on with the run
    ENDED = "ended"  # the run is over
    ELSEWHERE = "elsewhere"  # on another machine; what the files say is all that can be known here


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """One worker. None where nobody knows: a script that reports no steps, a process on another machine.

    ``state`` is ``starting``, ``training``, ``ended``, ``failed`` or ``gone``; ``what`` says how it ended.
    ``by_log``: the step is the last that its log tells. ``doing`` is what the rank says of itself (SDK).
    ``step_age_s`` is the age of its last report, ``rate`` in steps a second, ``rss_bytes`` the resident
    memory, ``cpu`` a share of one processor (2.0: two of them).
    """

    rank: int
    pid: int | None
    state: str
    what: str = ""
    step: int | None = None
    by_log: bool = False
    epoch: int | None = None
    doing: str = ""
    step_age_s: float | None = None
    rate: float | None = None
    rss_bytes: int | None = None
    cpu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastIncident:
    """The newest card: its first line, and how long ago it was. ``ordered``: nothing had failed."""

    number: int
    headline: str
    age_s: float | None
    ordered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestCheckpoint:
    """The newest file by its time that a checkpoint format claims by its name; nothing was verified."""

    path: str
    step: int | None
    age_s: float
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What would follow if one more rank died now: restart ``number`` of ``allowed``, or the end."""

    restarts: bool
    number: int
    allowed: int
    backoff_s: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyStatus:
    """``ready`` of ``wanted`` standbys wait; ``memory_bytes`` (PSS) is of all of them, ``text`` in words."""

    wanted: int
    ready: int
    memory_bytes: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Everything on one screen. ``elapsed_s`` is wall time since the run began; it stops when the run ends.

    ``suspected`` is the newest word on a hang that is neither taken back nor acted on, mostly empty.
    ``step`` is the furthest rank's, ``slowest_step`` the one furthest behind, ``rate`` steps a second.
    ``savings`` are those of ``savings_document``, None where nobody looked. ``workers``: who was left out of
    a run that may shrink.
    """

    run_id: str
    command: str
    log_dir: str
    supervisor: Supervised
    phase: str
    why: str
    suspected: str
    incarnation: int
    world_size: int
    here: int
    elapsed_s: float
    last_event_age_s: float | None
    step: int | None
    slowest_step: int | None
    rate: float | None
    restarts: int
    restarts_in_window: int
    restarts_left: int
    window_s: float
    incidents: int
    last_incident: LastIncident | None
    resumed_from: str
    resumed_step: int | None
    last_checkpoint: NewestCheckpoint | None
    outlook: Outlook | None
    standbys: StandbyStatus | None
    ended: tuple[int, str] | None
    ranks: tuple[RankState, ...]
    savings: Mapping[str, Any] | None = None
    workers: str = ""

    @property
    def up(self) -> int:
        """Workers that run."""
        return sum(rank.state in ("running", "training") for rank in self.ranks)


_SUPERVISED = {
    Supervised.RUNNING: "",
    Supervised.ENDED: "",
    Supervised.GONE: "no supervisor is running; the same command continues the run",
    Supervised.ELSEWHERE: "its supervisor is on another machine; this is what its files say",
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


def title(status: RunStatus) -> str:
    """Phase, incarnation, how many are up and for how long."""
    if status.ended is not None:
        code, why = status.ended[0], printable(status.ended[1].partition("\n")[0])
        return f"ended with exit code {code} after {span(status.elapsed_s)}: {why}"
    beyond = f" here, {status.world_size:,} in all" if status.world_size > status.here else ""
    up = f"{status.up} of {status.here} ranks up{beyond}"
    return f"{status.phase}  incarnation {status.incarnation}  {up}  for {span(status.elapsed_s)}"


def facts(status: RunStatus) -> Iterator[tuple[str, str]]:
    """What is worth a line, by name; what nobody knows has none."""
    return ((name, printable(text)) for name, text in _facts(status))


def _facts(status: RunStatus) -> Iterator[tuple[str, str]]:
    if _SUPERVISED[status.supervisor]:
        yield "supervisor", _SUPERVISED[status.supervisor]
    if status.suspected:
        yield "a hang?", status.suspected
    if status.phase != "running" and status.ended is None and status.why:
        yield "now", status.why.splitlines()[0]
    if status.workers:
        yield "workers", status.workers
    if status.step is not None:
        rate = f"   {status.rate:.3g} steps/s" if status.rate is not None else ""
        behind = status.slowest_step is not None and status.slowest_step < status.step
        slowest = f"   (slowest {status.slowest_step:,})" if behind else ""
        by_log = "   by the logs" if any(rank.by_log for rank in status.ranks) else ""
        yield "step", f"{status.step:,}{by_log}{slowest}{rate}"
    left = f"{status.restarts_left} left in {duration(status.window_s)}"
    yield "restarts", f"{status.restarts} so far; {left}" if status.ended is None else f"{status.restarts}"
    if status.last_incident is not None:
        ago = "" if status.last_incident.age_s is None else f"   {span(status.last_incident.age_s)} ago"
        yield "newest" if status.last_incident.ordered else "last fault", status.last_incident.headline + ago
    if status.resumed_from:
        step = "" if status.resumed_step is None else f"step {status.resumed_step:,}   "
        yield "resumed", step + status.resumed_from
    newest = status.last_checkpoint
    if newest is not None:
        step = "" if newest.step is None else f"step {newest.step:,}   "
        yield "checkpoint", f"{step}{span(newest.age_s)} old, not verified   {newest.path}"
    if status.outlook is not None:
        yield "next fault", status.outlook.text
    if status.savings is not None and status.savings["text"]:
        yield "saved", str(status.savings["text"]).removeprefix("saved ")
    if status.standbys is not None and status.standbys.text:
        yield "standbys", status.standbys.text


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
    words = [status.phase, f"incarnation {status.incarnation}", f"{status.up}/{status.here} ranks"]
    if status.step is not None:
        words.append(f"step {status.step:,}")
    if status.rate is not None:
        words.append(f"{status.rate:.3g} steps/s")
    words.append(f"{status.restarts} restarts")
    if status.supervisor is Supervised.GONE:
        words.append("supervisor gone")
    return "  ".join(words)
