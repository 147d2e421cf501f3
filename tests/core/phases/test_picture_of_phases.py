"""The picture of the phases in DESIGN.md, and what the table really does."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from faultrun.core.phases.decide import decide
from faultrun.model.events import (
    Drained,
    Event,
    FaultNotice,
    GoGiven,
    HelperExit,
    NothingWhole,
    PlanAdopted,
    Prepared,
    PrepareFailed,
    RecoveryPointChosen,
    RunFinished,
    RunStarted,
    SpawnFailed,
    Timer,
    TimerFired,
    WorkerExit,
)
from faultrun.model.exits import Exited, Signaled
from faultrun.model.incident import Cause
from faultrun.model.observed.agreement import AgreementSilent, IncarnationOver, LookAgain, MembershipLost
from faultrun.model.observed.dying_gasp import GaspAcknowledged, GaspFailed, GaspSaved, GaspVerified, SaveSeen
from faultrun.model.observed.elastic import (
    NodesWaiting,
    SaveWhileNodesWait,
    SetAside,
    SlotLedger,
    SlotsUsable,
    Vacant,
)
from faultrun.model.observed.hang import Activity, HangDetected
from faultrun.model.observed.mindspore_rendezvous import RankMissed, RanksMet, SchedulerFailed
from faultrun.model.observed.platform_notice import RankStatus, ReportedRank, ResetNotice
from faultrun.model.observed.progress import WorkPhase
from faultrun.model.observed.rejoin import (
    DeathsExamined,
    MemoryFaultFound,
    RankCannotRejoin,
    RankCanRejoin,
    RankRejoined,
    SurvivorsFreed,
)
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.run import Phase, RunState
from faultrun.model.spec.windows import NO_TIME, Windows
from faultrun.model.stop import StopRequested, StopSource
from faultrun.model.topology import BootId, NodeId
from support.places import ROOT
from support.stories.story import NODE, STAYING, first_plan, new_run

DESIGN = ROOT / "launcher" / "DESIGN.md"
Arrow = tuple[str, str, str]
STARTING = (Phase.NEW, Phase.SURVEYING, Phase.AWAITING_PLAN, Phase.PREPARING, Phase.AWAITING_GO)
ENDING = (Phase.DRAINING, Phase.KILLING, Phase.SWEEPING)

BACK = ResetNotice(ranks=(ReportedRank(rank=0, status=RankStatus.UNRECOVERED),))
GONE = ResetNotice(ranks=(ReportedRank(rank=0, status=RankStatus.FAILED),))

SHARING = replace(STAYING, trains_from=1)
LESS = SlotLedger(
    aside=(SetAside(node=NODE, slot=2, incarnation=1, why="its device failed"),),
    vacant=(Vacant(seat=1, node=NodeId("b"), incarnation=1, why="it was lost"),),
)


def facts(state: RunState) -> Iterator[Event]:
    """What can be told in ``state``: every kind of event that any phase answers, and of living ranks only."""
    now: dict[str, Any] = {"at_s": 0.0, "incarnation": state.incarnation}
    yield RunStarted(**now, node=NODE, boot=BootId("b"), pid=1)
    yield RecoveryPointChosen(**now, point=None, refused=())
    yield NothingWhole(**now, refused=(), why="torn")
    for later_s in (0.0, 9.0):
        plan = first_plan(2, incarnation=state.incarnation + 1, start_at_s=later_s, slots=LESS)
        yield PlanAdopted(at_s=0.0, incarnation=plan.incarnation, plan=plan)
    kept = first_plan(2, incarnation=state.incarnation + 1, kept=state.life.alive, slots=LESS)
    yield PlanAdopted(at_s=0.0, incarnation=kept.incarnation, plan=kept)
    yield DeathsExamined(**now, dead=tuple(one.rank for one in state.life.exits), notes=())
    for rank in state.life.alive:
        yield RankCanRejoin(**now, rank=rank)
        yield RankRejoined(**now, rank=rank, step=1)
        yield RankCannotRejoin(**now, rank=rank, why="no memory")
        yield MemoryFaultFound(**now, rank=rank, what="a bad tensor")
    yield Prepared(**now, master_port=1)
    yield PrepareFailed(**now, exit_code=78, why="no such key")
    yield PrepareFailed(**now, exit_code=65, why="not seen here", unseen="/ckpt/s-60.pt")
    yield PrepareFailed(**now, exit_code=71, why="no room", surveying=True)
    yield GoGiven(**now, master_addr="here", master_port=1)
    for rank in state.life.alive:
        for status in (Exited(code=0), Exited(code=3), Signaled(signum=9)):
            yield WorkerExit(**now, node=NODE, rank=rank, pid=1, status=status)
        yield SpawnFailed(**now, rank=rank, errno=2, why="no such file")
    yield HelperExit(**now, name="scheduler", pid=1, status=Exited(code=1))
    if not state.run.native_scheduler:
        yield RanksMet(**now)
    yield RankMissed(**now, rank=0)
    yield SchedulerFailed(**now, why="a bug")
    yield HangDetected(
        **now,
        rank=0,
        step=1,
        doing=WorkPhase.COMPUTING,
        stance=Activity.STOPPED,
        silent_s=9,
        limit_s=1,
        why="",
    )
    for notice in (BACK, GONE, ResetNotice()):
        yield FaultNotice(**now, notice=notice)
    yield GaspAcknowledged(**now, rank=0, step=1)
    yield GaspFailed(**now, rank=0, why="disk full")
    yield GaspSaved(**now, rank=0, path="a", step=1, size_bytes=1, took_s=0.1)
    yield GaspVerified(**now, rank=0, path="a", whole=True, why="whole")
    yield SaveSeen(**now, path="a")
    yield from (TimerFired(**now, timer=timer) for timer in Timer)
    for stragglers in ((), (7,)):
        yield Drained(**now, stragglers=stragglers, swept=0, notes=())
    for at_s, source in ((0.0, StopSource.SIGINT), (0.0, StopSource.PLATFORM), (1.0, StopSource.SIGINT)):
        yield StopRequested(**{**now, "at_s": at_s}, source=source)
    yield IncarnationOver(**now, why="a peer fell")
    yield IncarnationOver(**now, why="a peer fell", stays=True)
    for port in (7000, 0):
        yield SurvivorsFreed(**now, meeting_port=port, why="no port")
    yield MembershipLost(**now, why="no lease")
    yield SlotsUsable(**now, node=NODE, slots=(2,))
    yield NodesWaiting(**now, nodes=(NodeId("b"),))
    yield SaveWhileNodesWait(**now, path="a")
    yield LookAgain(**now, number=1)
    yield AgreementSilent(**now, why="no answer")
    for code in (0, 1):
        yield RunFinished(**now, exit_code=code, why="over")


def facts_of_empty_places(state: RunState) -> Iterator[Event]:
    """What is told where ranks train on, and of all else only what does not lead away from there."""
    if state.phase not in (*STARTING, Phase.RUNNING, Phase.REPLACING):
        return
    now: dict[str, Any] = {"at_s": 0.0, "incarnation": state.incarnation}
    kept, number = state.life.alive, state.incarnation + 1
    if missing := frozenset(range(2)) - kept:
        for plan in (
            first_plan(2, incarnation=number, kept=kept, missing=missing),
            first_plan(2, incarnation=number, kept=kept, heals=True),
        ):
            yield PlanAdopted(at_s=0.0, incarnation=number, plan=plan)
        yield from (StandbyChanged(**now, rank=rank, state=StandbyPhase.PARKED) for rank in sorted(missing))
    for rank in kept:
        yield from (RankCanRejoin(**now, rank=rank, trains_on=why) for why in ("", "batch norm"))
    yield from (
        event for event in facts(state) if not isinstance(event, FaultNotice | RunStarted) or number == 0
    )


def name(event: Event) -> str:
    timer = f"({event.timer.name})" if isinstance(event, TimerFired) else ""
    return f"{type(event).__name__}{timer}"


def kind(state: RunState) -> object:
    """States of one kind are answered alike; one of them is followed."""
    if state.phase is Phase.FINISHED:
        return state.phase, state.exit_code
    life, drain = state.life, state.life.drain
    reset = state.run.platform.reset
    # Which of two ranks it is makes no difference, nor what a dead one could do, or one that is being ended.
    able = () if state.phase in ENDING else life.alive
    return (
        state.phase,
        len(life.alive),
        len(life.finished) > 0,
        life.forming,
        tuple(sorted((rank in life.rejoinable, rank in life.rejoining) for rank in able)),
        min(life.regroups, 1),
        None
        if drain is None
        else (drain.incident is None, bool(drain.reading), drain.swept, drain.deadline > NO_TIME),
        drain is not None
        and drain.incident is not None
        and drain.incident.cause is Cause.HANG
        and drain.incident.rank in able,
        None if state.stop is None else len(state.stop.signals),
        state.failure is None,
        None if reset is None else reset.ranks,
        state.plan is None,
        state.plan is not None and (bool(state.plan.missing), state.plan.heals),
        bool(life.parked - life.alive),
        tuple(sorted({word for rank, word in life.sharing if rank in able})),
        state.exit_code,
        state.phase is Phase.RUNNING and bool(life.waiting),
        state.phase is Phase.AWAITING_PLAN and life.lacks is not None,
    )


def arrows(windows: Windows, told: Callable[[RunState], Iterator[Event]] = facts) -> set[Arrow]:
    first = new_run(2, windows)
    border, known, found = [first], {kind(first)}, set()
    while border:
        state = border.pop()
        for event in told(state):
            after = decide(state, event).state
            if after.phase is not state.phase:
                found.add((state.phase.name, name(event), after.phase.name))
            if kind(after) not in known:
                known.add(kind(after))
                border.append(after)
    return found


@pytest.mark.long
def test_the_picture_shows_every_arrow_of_the_table_and_no_other() -> None:
    assert drawn() == arrows(STAYING) | arrows(SHARING, facts_of_empty_places)


def drawn() -> set[Arrow]:
    picture = DESIGN.read_text().partition("## Phases")[2].partition("```")[2].partition("```")[0]
    found: set[Arrow] = set()
    for line in picture.splitlines():
        parts = re.fullmatch(r"([A-Z_ ]+?) +─ ([\w(), ]+) ─+► ([A-Z_]+).*", line)
        if parts is not None:
            found |= {(one, event, parts[3]) for one in parts[1].split() for event in parts[2].split(", ")}
    return found


if __name__ == "__main__":
    for one in sorted(arrows(STAYING) | arrows(SHARING, facts_of_empty_places)):
        print(*one)  # noqa: T201
