"""The journals of the nodes of a real run, as what happened when: their lines, and the lives of their ranks.

Clocks of machines are only as near to one another as they are set, and a line may be written late. So what
begins counts from when its line was written, and what ends from when it happened: whoever is found to
overlap did.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from faultrun.journal.append import FILE_NAME
from faultrun.journal.codec import CodecError, decode
from faultrun.journal.lines import moment
from faultrun.journal.read import event_of, lines
from faultrun.model.actions import Publish
from faultrun.model.events import (
    Drained,
    Event,
    GoGiven,
    IncarnationStarted,
    PlanAdopted,
    RunStarted,
    WorkerExit,
    WorkerStarted,
)
from faultrun.model.observed.agreement import AgreementSilent, LookAgain, MembershipLost
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.observed.rejoin import RankRejoined
from faultrun.model.plan import Plan
from faultrun.model.run import Phase
from faultrun.model.topology import NodeId

_BEGINS = (PlanAdopted, GoGiven, LookAgain, WorkerStarted, IncarnationStarted, RankRejoined)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One line of ``node``: its event, what the node stated then, and the moment that counts (UTC seconds).

    ``boot``: under which name the node took part by then. ``phase``: where it stood after that.
    ``revision``: of the store, where the line tells.
    """

    at: float
    node: str
    boot: str
    seq: int
    event: Event
    facts: tuple[NodeFact, ...] = ()
    phase: str = ""
    revision: int | None = None

    @property
    def where(self) -> str:
        return f"node {self.node}, line {self.seq}"


@dataclass(slots=True, kw_only=True)
class Life:
    """The ranks of one incarnation on one node. ``ended`` is the last moment at which one is known to live.

    ``told``: the node saw all of them end. ``fenced``: it ended them because it may have been alone.
    They are in a group from ``trains`` on (None: never), and were ``freed`` from it. Who lives on is in the
    next incarnation's part from then on.
    """

    node: str
    incarnation: int
    began: float
    ended: float = 0.0
    alive: set[int] = field(default_factory=set)
    awaited: set[int] = field(default_factory=set)
    trains: float | None = None
    freed: float | None = None
    seq: int = -1
    started: int = -1
    drained: bool = False
    fenced: bool = False

    @property
    def told(self) -> bool:
        return not self.alive

    @property
    def where(self) -> str:
        return f"node {self.node}, ranks of {self.incarnation}"


def told(folders: Iterable[Path], slack_s: float = 0.0) -> list[Told]:
    """Every line of all journals in the order of what happened. Folders without one are passed over."""
    found = [line for folder in folders if (folder / FILE_NAME).exists() for line in _of_one(folder, slack_s)]
    return sorted(found, key=lambda line: (line.at, isinstance(line.event, _BEGINS)))


def lives(folders: Iterable[Path], story: Iterable[Told]) -> list[Life]:
    """Every node's part in every incarnation, with its end.

    Who saw its ranks end knows when. Of those that the deadman killed while their supervisor stood still,
    and of those that went with their host, the last moment at which they wrote anything is all that is known.
    """
    homes = {_name(folder): folder for folder in folders if (folder / FILE_NAME).exists()}
    found: dict[tuple[str, int], Life] = {}
    newest: dict[str, Life] = {}
    for line in story:
        key = (line.node, line.event.incarnation)
        if line.phase == Phase.REPLACING.value and line.node in newest:
            newest[line.node].freed = newest[line.node].freed or line.at
        match line.event:
            case PlanAdopted(plan=plan) if plan.kept and line.phase == Phase.RUNNING.value:
                newest[line.node] = found[key] = _lives_on(newest[line.node], line, plan)
            case WorkerStarted(incarnation=number, rank=rank):
                newest[line.node] = life = found.setdefault(
                    key,
                    Life(
                        node=line.node,
                        incarnation=number,
                        began=line.at,
                        trains=line.at,
                        seq=line.seq,
                        started=number,
                    ),
                )
                life.alive.add(rank)
            case RankRejoined(rank=rank) if key in found:
                found[key].awaited.discard(rank)
                found[key].trains = None if found[key].awaited else found[key].trains or line.at
            case WorkerExit(rank=rank) if key in found:
                life = found[key] if rank in found[key].alive else newest[line.node]
                life.alive.discard(rank)
                life.ended = max(life.ended, line.at)
            case Drained() if key in found:
                found[key].drained = True
            case MembershipLost() if key in found and not found[key].drained:
                found[key].fenced = True
    for life in found.values():
        if life.fenced or not life.told:
            wrote = _wrote_last(homes[life.node] / f"incarnation_{life.started}")
            life.ended = min(wrote, life.ended) if life.told else wrote
        life.ended = max(life.ended, life.began + 1e-6)
    return sorted(found.values(), key=lambda life: life.began)


def _lives_on(before: Life, line: Told, plan: Plan) -> Life:
    """The part of the survivors in the incarnation that keeps them; it is over for those before."""
    own = set(plan.topology.ranks_of(NodeId(line.node)))
    kept, before.alive = before.alive & plan.kept, before.alive - plan.kept
    before.ended = max(before.ended, line.at)
    return Life(
        node=line.node,
        incarnation=plan.incarnation,
        began=line.at,
        alive=kept,
        awaited=own,
        seq=line.seq,
        started=plan.started,
    )


def silences(story: Iterable[Told]) -> set[tuple[str, int]]:
    """The nodes that heard nothing of the store, each with the incarnation that it was in."""
    return {(line.node, line.event.incarnation) for line in story if isinstance(line.event, AgreementSilent)}


def _wrote_last(folder: Path) -> float:
    times = [0.0]
    for path in (folder / "progress", *folder.glob("*.log")):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)


def _name(folder: Path) -> str:
    return next(str(line["node"]) for line in lines(folder / FILE_NAME) if "node" in line)


def _of_one(folder: Path, slack_s: float) -> Iterator[Told]:
    """The lines of one journal. Two of one node never change places."""
    boot, before, offset_s = "", 0.0, _offsets(folder)
    for data in lines(folder / FILE_NAME):
        event, written = _event(data), moment(str(data.get("at_utc")))
        if event is None or written is None:
            continue
        if isinstance(event, RunStarted):
            boot = event.boot
        if isinstance(event, MembershipLost):
            boot = event.boot or boot
        late = written.timestamp() + 0.001
        early = min(late, event.at_s + offset_s[str(data.get("boot"))])
        at = late + slack_s if isinstance(event, _BEGINS) else early
        before = max(before, at)
        yield Told(
            at=before,
            node=str(data["node"]),
            boot=boot,
            seq=int(data.get("seq", -1)),
            event=event,
            facts=tuple(_facts(data)),
            phase=str(data.get("phase", "")),
            revision=data.get("revision"),
        )


def _offsets(folder: Path) -> dict[str, float]:
    """From each supervisor's run-seconds to UTC: a line is never written before what it tells of."""
    found: dict[str, float] = {}
    for data in lines(folder / FILE_NAME):
        written, run_s = moment(str(data.get("at_utc"))), data.get("run_s")
        if written is not None and isinstance(run_s, (int, float)):
            boot = str(data.get("boot"))
            found[boot] = min(found.get(boot, 1e18), written.timestamp() - run_s)
    return found


def _event(data: dict[str, Any]) -> Event | None:
    with suppress(CodecError):
        return event_of(data)
    return None


def _facts(data: dict[str, Any]) -> Iterator[NodeFact]:
    for action in data.get("actions", ()):
        if isinstance(action, dict) and action.get("is") == Publish.WIRE_NAME:
            with suppress(CodecError):
                published: Publish = decode(action, Publish)
                yield published.fact


def without_clock(line: Told) -> object:
    """A plan or a go as everybody has to read it: the time in it is each node's own."""
    event = line.event
    if isinstance(event, PlanAdopted):
        return replace(event.plan, start_at_s=0.0)
    return (event.master_addr, event.master_port) if isinstance(event, GoGiven) else None
