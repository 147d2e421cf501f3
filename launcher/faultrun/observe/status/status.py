"""How a run stands at one moment, as ``faultrun status`` shows it: values, and the same as JSON-ready data.

Two sources make it: the files of one log_dir, and what the nodes of a run agreed on in etcd.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from faultrun.model.incident import Card
from faultrun.observe.standby_words import StandbyTally

_SCHEMA = 1
ALIVE, LEFT, SPARE = "alive", "left", "spare"
"""What is said of a node in ``NodeRow.state``, among other words."""


class Supervised(Enum):
    """Whether a supervisor looks after the run."""

    RUNNING = "running"
    GONE = "gone"  # it was killed: the same command goes on with the run
    ENDED = "ended"  # the run is over
    ELSEWHERE = "elsewhere"  # on another machine; what the files say is all that can be known here


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """One worker. None if unknown: a script that reports no steps, a process on another machine.

    ``state`` is ``starting``, ``training``, ``missing``, ``ended``, ``failed`` or ``gone``; ``what`` says how
    it ended. ``by_log``: the step is the last that its log tells. ``doing`` is what the rank says of itself
    (SDK). ``step_age_s`` is the age of its last report, ``rate`` in steps a second, ``rss_bytes`` the
    resident memory, ``cpu`` a share of one processor (2.0: two of them).
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
class NodeRow:
    """One supervisor of a node. ``state``: alive, lost, left (the run is over), spare, waits (no plan yet),
    aside (it gets no rank until it is well).

    ``says`` is its own newest statement, about ``incarnation``; ``failure`` why it cannot go on, ``lacks``
    why it can resume from nothing that it sees. ``ranks`` are the first and the last that the plan gives it.
    ``arrived`` counts those that are here, 0: it is not. ``hangs``: which of its ranks may hang, and
    where it is.
    """

    node: str
    boot: str
    state: str
    address: str
    says: str = ""
    incarnation: int | None = None
    failure: str = ""
    lacks: str = ""
    hangs: str = ""
    stopping: bool = False
    node_rank: int | None = None
    ranks: tuple[int, int] | None = None
    arrived: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartsSpent:
    """Restarts and incidents so far; ``counted``: restarts since training last moved on.

    ``left`` of ``allowed`` in ``window_s`` may follow; None: an older plan does not say.
    """

    restarts: int
    counted: int
    incidents: int
    high_step: int | None
    allowed: int | None = None
    left: int | None = None
    window_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How the run ended. ``stopped``: it was told to."""

    exit_code: int
    why: str
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationAlarm:
    """That an incarnation is over. ``node``: which said so, empty for the coordinator."""

    incarnation: int
    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedState:
    """What several nodes agreed on in etcd, and no file of one node tells.

    ``run_s`` is the run's clock when the plan was written last; ``waits`` what the coordinator waits for.
    ``began_after`` is the cause of the incident that the plan answers, empty where it answers none.
    ``card`` is of the newest incident, None where the plan tells of none.
    """

    etcd: tuple[str, ...]
    run_s: float
    coordinator: str
    waits: str
    began: str
    began_after: str
    kept: tuple[int, ...]
    workers_at: str
    alarms: tuple[IncarnationAlarm, ...]
    card: Card | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Everything on one screen. Of a log_dir ``agreed`` is None and ``nodes`` is empty; of etcd there are no
    ``ranks``, steps and files.

    ``incarnation`` is -1 before the first plan. ``elapsed_s`` is wall time since the run began; it stops when
    the run ends. ``suspected`` is the newest word on a hang that is neither taken back nor acted on, mostly
    empty. ``step`` is the furthest rank's, ``slowest_step`` the one furthest behind, ``rate`` steps a second.
    ``missing``: without whom the others train on, and how long that is so by now. ``workers``: who was left
    out of a run that may shrink. ``savings`` are those of ``savings_document``, None if not looked at.
    ``log_dir`` of several nodes has a folder for each where they share it.
    """

    run_id: str
    log_dir: str
    supervisor: Supervised
    phase: str
    incarnation: int
    world_size: int
    spent: RestartsSpent
    last_incident: LastIncident | None
    resumed_from: str
    resumed_step: int | None
    ended: RunEnd | None
    workers: str = ""
    missing: str = ""
    nodes: tuple[NodeRow, ...] = ()
    agreed: AgreedState | None = None
    command: str = ""
    why: str = ""
    suspected: str = ""
    here: int = 0
    elapsed_s: float | None = None
    last_event_age_s: float | None = None
    step: int | None = None
    slowest_step: int | None = None
    rate: float | None = None
    last_checkpoint: NewestCheckpoint | None = None
    first_save: str = ""
    outlook: Outlook | None = None
    standbys: StandbyTally | None = None
    ranks: tuple[RankState, ...] = ()
    savings: Mapping[str, Any] | None = None

    @property
    def up(self) -> int:
        """Workers that run."""
        return sum(rank.state in ("running", "training") for rank in self.ranks)

    @property
    def members(self) -> tuple[NodeRow, ...]:
        """Nodes that have ranks, in their order."""
        return tuple(one for one in self.nodes if one.ranks is not None)


def document(status: RunStatus) -> dict[str, Any]:
    """What ``--json`` prints; ``docs/watching.md`` and ``docs/several-nodes.md`` describe it."""
    told = _of_log_dir(status) if status.agreed is None else _of_etcd(status, status.agreed)
    return {"schema": _SCHEMA, **told}


def _of_log_dir(status: RunStatus) -> dict[str, Any]:
    data, spent, ended = asdict(status), status.spent, status.ended
    rare = (name for name in ("workers", "missing") if not data[name])  # most runs have nothing to tell
    for name in ("agreed", "nodes", "spent", *rare):
        del data[name]
    return {
        **data,
        "supervisor": status.supervisor.value,
        "standbys": None if status.standbys is None else _standbys(status.standbys),
        "restarts": spent.restarts,
        "restarts_in_window": (spent.allowed or 0) - (spent.left or 0),
        "restarts_left": spent.left,
        "window_s": spent.window_s,
        "incidents": spent.incidents,
        "ended": None if ended is None else {"exit_code": ended.exit_code, "why": ended.why},
    }


def _standbys(tally: StandbyTally) -> dict[str, Any]:
    ready, memory_bytes = len(tally.ready), tally.memory_bytes
    return {"wanted": tally.wanted, "ready": ready, "memory_bytes": memory_bytes, "text": tally.words()}


def _of_etcd(status: RunStatus, agreed: AgreedState) -> dict[str, Any]:
    data, told = asdict(replace(status, agreed=None)), asdict(replace(agreed, card=None))
    del told["card"]
    last, point = status.last_incident, ("resumed_from", "resumed_step")
    same = ("run_id", "log_dir", "phase", "world_size", *point, "spent", "ended", "nodes")
    return {
        **{name: data[name] for name in same},
        **told,
        "incarnation": status.incarnation if status.incarnation >= 0 else None,
        "left_out": status.workers,
        "restarts_left": status.spent.left,
        "last_incident": None if last is None else {"number": last.number, "headline": last.headline},
    }
