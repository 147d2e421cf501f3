"""Journals of a run that kept every law are passed, and each law that a journal is made to break is named."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import pytest

from faultrun.journal.append import FILE_NAME, line_of
from faultrun.model.actions import Publish
from faultrun.model.events import (
    Drained,
    Event,
    GoGiven,
    PlanAdopted,
    RunFinished,
    RunStarted,
    WorkerExit,
    WorkerStarted,
)
from faultrun.model.exits import Exited, Signaled
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.agreement import AgreementSilent, IncarnationOver, MembershipLost, OwnNodeAside
from faultrun.model.observed.dying_gasp import GaspSaved, GaspVerified
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.observed.rejoin import RankRejoined
from faultrun.model.plan import Ledger, Restart
from faultrun.model.run import Drain, Life, Phase, RunState, Step
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from model.replay import broken_laws
from model.values import point
from support.nodes.node_facts import node_fact
from support.stories.story import WINDOWS, first_plan

A, B = NodeId("a"), NodeId("b")
SEATS = Topology(nodes=(NodeSlots(node=A, slots=1), NodeSlots(node=B, slots=1)))
FIRST = replace(first_plan(2, topology=SEATS), boots=(BootId("a0"), BootId("b0")))
SECOND = replace(FIRST, incarnation=1, point=point(5), ledger=Ledger(total_restarts=1))
ENDS = Signaled(signum=15)
FELL = Exited(code=1)
_DRAINS = {Phase.REPLACING: Drain()}


class Said(NamedTuple):
    """One line of a journal; what ``node`` stated then goes with it, and where it stood after it."""

    at: float
    node: NodeId
    event: Event
    fact: NodeFact | None = None
    phase: Phase = Phase.NEW


Story = list[Said]


def rank_of(node: NodeId) -> int:
    return 0 if node == A else 1


def told(node: NodeId, at: float, *, fell: bool, step: int = 5) -> NodeFact:
    incident = Incident(number=1, incarnation=0, at_s=at, cause=Cause.EXIT, rank=0, status=FELL)
    elsewhere = replace(incident, cause=Cause.ELSEWHERE)
    return node_fact(
        node=node,
        boot=BootId(f"{node}0"),
        at_s=at,
        incarnation=0,
        status=NodeStatus.JOINED,
        incident=incident if fell else elsewhere,
        point=point(step),
    )


def a_run() -> Story:
    """A rank of the first node falls, both drain, the second life begins at the save and ends well."""
    said: Story = []
    for node in (A, B):
        rank, pid = rank_of(node), 7
        out = FELL if node == A else ENDS
        started = WorkerStarted(at_s=3, incarnation=0, node=node, rank=rank, pid=pid)
        ended = WorkerExit(at_s=10, incarnation=0, node=node, rank=rank, pid=pid, status=out)
        said += [
            Said(0, node, RunStarted(at_s=0, incarnation=-1, node=node, boot=BootId(f"{node}0"), pid=1)),
            Said(1, node, PlanAdopted(at_s=1, incarnation=0, plan=replace(FIRST, start_at_s=rank))),
            Said(2, node, GoGiven(at_s=2, incarnation=0, master_addr="a", master_port=1)),
            Said(3, node, started),
            Said(10, node, ended),
            Said(10.2, node, drained(10.2), told(node, 10, fell=node == A)),
            Said(11, node, PlanAdopted(at_s=11, incarnation=1, plan=SECOND)),
            Said(12, node, GoGiven(at_s=12, incarnation=1, master_addr="a", master_port=1)),
            Said(12.1, node, replace(started, at_s=12.1, incarnation=1)),
            Said(20, node, replace(ended, at_s=20, incarnation=1, status=Exited(code=0))),
            Said(20.1, node, replace(drained(20.1), incarnation=1)),
            Said(20.2, node, RunFinished(at_s=20.2, incarnation=1, exit_code=0, why="", stopped=False)),
        ]
    return said


def drained(at: float) -> Drained:
    return Drained(at_s=at, incarnation=0, stragglers=(), swept=0, notes=())


def exits(node: NodeId, incarnation: int) -> Callable[[Said], bool]:
    return lambda said: (
        isinstance(said.event, WorkerExit) and said.node == node and said.event.incarnation == incarnation
    )


def changed(story: Story, which: Callable[[Said], bool], **fields: object) -> Story:
    """The same with other fields in some events; ``at_s`` also moves the line."""
    return [
        said._replace(at=float(str(fields.get("at_s", said.at))), event=replace(said.event, **fields))  # type: ignore[arg-type]
        if which(said)
        else said
        for said in story
    ]


def plans(number: int, *nodes: NodeId) -> Callable[[Said], bool]:
    return lambda said: (
        isinstance(said.event, PlanAdopted) and said.event.incarnation == number and said.node in nodes
    )


def written(folder: Path, story: Story) -> list[Path]:
    """The journals of the story, each in its node's folder."""
    state = RunState(node=A, topology=SEATS, windows=WINDOWS)
    nodes = tuple(dict.fromkeys(said.node for said in story))
    for node in nodes:
        home = folder / f"node_{node}"
        home.mkdir(parents=True, exist_ok=True)
        own = sorted((said for said in story if said.node == node), key=lambda said: said.at)
        with (home / FILE_NAME).open("w") as journal:
            for seq, said in enumerate(own):
                after = replace(state, phase=said.phase, life=Life(drain=_DRAINS.get(said.phase)))
                step = Step(
                    state=after, actions=() if said.fact is None else (Publish(fact=said.fact),), why=""
                )
                line = line_of(said.event, step, {"node": node, "boot": f"{node}0"})
                at_utc = datetime.fromtimestamp(1e9 + said.at, timezone.utc).isoformat()
                journal.write(json.dumps({"seq": seq, "at_utc": at_utc, **line}) + "\n")
    return [folder / f"node_{node}" for node in nodes]


def test_a_run_that_kept_every_law_is_passed(tmp_path: Path) -> None:
    assert broken_laws(written(tmp_path, a_run())) == []


KEPT = replace(SECOND, point=None, kept=frozenset({1}), since=0)


def a_replacement(*, freed: float = 10.1, follows: float = 11, whole: float = 12) -> Story:
    """A rank of the first node falls and is started again; that of the second stays and rejoins."""
    said = [one for one in a_run() if one.at < 10 or one.at > 20]
    starts = WorkerStarted(at_s=11.1, incarnation=1, node=A, rank=0, pid=8)
    fell = WorkerExit(at_s=10, incarnation=0, node=A, rank=0, pid=7, status=FELL)
    stays = IncarnationOver(at_s=freed, incarnation=0, why="a rank fell", stays=True)
    said += [
        Said(10, A, fell, told(A, 10, fell=True), Phase.REPLACING),
        Said(freed, B, stays, told(B, freed, fell=False), Phase.REPLACING),
        Said(11, A, PlanAdopted(at_s=11, incarnation=1, plan=KEPT), phase=Phase.RUNNING),
        Said(follows, B, PlanAdopted(at_s=follows, incarnation=1, plan=KEPT), phase=Phase.RUNNING),
        Said(11.1, A, starts, phase=Phase.RUNNING),
    ]
    for node in (A, B):
        rank = rank_of(node)
        out = replace(fell, at_s=20, node=node, rank=rank, incarnation=1, status=Exited(code=0))
        rejoins = RankRejoined(at_s=whole, incarnation=1, rank=rank, step=5)
        said += [Said(whole, node, rejoins, phase=Phase.RUNNING), Said(20, node, out)]
    return said


def test_survivors_that_wait_for_a_newcomer_break_no_law(tmp_path: Path) -> None:
    assert broken_laws(written(tmp_path, a_replacement())) == []


def test_who_trains_is_not_kept(tmp_path: Path) -> None:
    laws = broken_laws(written(tmp_path, a_replacement(freed=11.5, follows=11.6)))
    assert "incarnation 1 is planned while ranks of an older one live (node a, line 5)" in laws


def test_no_rank_is_kept_whose_place_another_supervisor_has(tmp_path: Path) -> None:
    after = replace(KEPT, boots=(KEPT.boots[0], BootId("another")))
    story = [
        one._replace(event=replace(one.event, plan=after)) if one.event == stays else one
        for one in a_replacement()
        for stays in [PlanAdopted(at_s=11, incarnation=1, plan=KEPT)]
    ]
    laws = broken_laws(written(tmp_path, story))
    assert any("incarnation 1 keeps rank 1, whose place another node has" in law for law in laws)


def test_nobody_trains_on_before_the_survivors_of_every_node_are_in_the_group(tmp_path: Path) -> None:
    laws = broken_laws(written(tmp_path, a_replacement(follows=13, whole=12)))
    assert "ranks of [0, 1] live at once (node a, ranks of 1)" in laws


def saved(step: int) -> Story:
    """The other node saved that step for all, and it was read back."""
    save = GaspSaved(at_s=9.8, incarnation=0, rank=1, path="7", step=step, size_bytes=1, took_s=0)
    seen = GaspVerified(at_s=9.9, incarnation=0, rank=1, path="7", whole=True, why="")
    return [Said(9.8, B, save), Said(9.9, B, seen)]


def alone(*silent: NodeId) -> Story:
    """The second node is fenced; these heard nothing of etcd before."""
    quiet = [Said(8, node, AgreementSilent(at_s=8, incarnation=0, why="")) for node in silent]
    lost = MembershipLost(at_s=10.1, incarnation=0, why="alone", boot=BootId("b1"))
    joins = replace(SECOND, boots=(BootId("a0"), BootId("b1")))
    story = changed([*a_run(), *quiet, Said(10.1, B, lost)], plans(1, A, B), plan=joins)
    return changed(story, exits(A, 0), at_s=10.15, status=ENDS)


OTHERS = replace(SECOND, topology=Topology(nodes=SEATS.nodes[::-1]), boots=SECOND.boots[::-1])

PLANTED: dict[str, tuple[Story, str]] = {
    "ranks of two incarnations": (
        changed(a_run(), exits(B, 0), at_s=12.5),
        "ranks of [0, 1] live at once (node a, ranks of 1)",
    ),
    "planned before all have drained": (
        changed(a_run(), exits(B, 0), at_s=11.5),
        "incarnation 1 is planned while ranks of an older one live (node a, line 6)",
    ),
    "behind what all can see": (
        changed(a_run(), plans(1, A, B), plan=replace(SECOND, point=point(3))),
        "it begins at 3 although 5 was saved (node a, line 6)",
    ),
    "behind a save that was read back": (
        [*a_run(), *saved(7)],
        "it begins at 5 although 7 was saved (node a, line 6)",
    ),
    "from nothing": (
        changed(a_run(), plans(1, A, B), plan=replace(SECOND, point=None)),
        "it begins at None although 5 was saved (node a, line 6)",
    ),
    "charged twice": (
        changed(
            a_run(),
            plans(1, A, B),
            plan=replace(SECOND, ledger=Ledger(restarts=2 * (Restart(at_s=1, step=5),))),
        ),
        "2 restarts charged for 1 faults (node a, line 6)",
    ),
    "given back": (
        changed(a_run(), plans(0, A, B), plan=replace(FIRST, ledger=Ledger(total_restarts=2))),
        "1 restarts after 2 (node a, line 6)",
    ),
    "two plans of one number": (
        changed(a_run(), plans(1, B), plan=OTHERS),
        "plan of 1 is not the same for all (node a, line 6; node b, line 6)",
    ),
    "a plan for others": (
        changed(a_run(), plans(1, A, B), plan=replace(SECOND, boots=(BootId("a0"), BootId("b9")))),
        "a plan of 1 is followed that is for others (node b, line 6)",
    ),
    "a seat that is forgotten": (
        changed(
            [said for said in a_run() if said.node == A or said.at < 12],
            plans(1, A),
            plan=replace(SECOND, topology=Topology(nodes=SECOND.topology.nodes[:1]), boots=SECOND.boots[:1]),
        ),
        "incarnation 1 has 1 nodes, and not every seat that is missing is vacant (node a, line 6)",
    ),
    "a number that comes again": (
        [*a_run(), Said(12.05, B, PlanAdopted(at_s=12.05, incarnation=1, plan=SECOND))],
        "1 is planned after 1 (node b, line 8)",
    ),
    "a rank of others": (
        changed(a_run(), lambda said: isinstance(said.event, WorkerStarted) and said.node == B, rank=0),
        "rank 0 of 0 runs where no plan puts it (node b, line 3)",
    ),
    "an end that is not true": (
        changed(a_run(), exits(B, 1), status=FELL),
        "the run ended with 0 although ranks [1] of 1 did not (node a, line 11)",
    ),
    "etcd away ends ranks": (alone(A, B), "ranks ended although only etcd was away (node b, ranks of 0)"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_law_that_was_broken_is_named(tmp_path: Path, planted: str) -> None:
    story, law = PLANTED[planted]
    assert law in broken_laws(written(tmp_path, story), only_etcd=True)


def test_who_was_set_aside_ends_with_the_run_of_the_others(tmp_path: Path) -> None:
    c = NodeId("c")
    idle = [
        Said(0, c, RunStarted(at_s=0, incarnation=-1, node=c, boot=BootId("c0"), pid=1)),
        Said(11, c, OwnNodeAside(at_s=11, incarnation=0, why="its ranks failed 2 times in a row")),
        Said(20.2, c, RunFinished(at_s=20.2, incarnation=0, exit_code=0, why="", stopped=False)),
    ]
    assert broken_laws(written(tmp_path / "good", [*a_run(), *idle])) == []
    story = changed([*a_run(), *idle], exits(B, 1), status=FELL)
    law = "the run ended with 0 although ranks [1] of 1 did not (node c, line 2)"
    assert law in broken_laws(written(tmp_path / "bad", story))


def test_a_node_that_was_cut_off_alone_breaks_none(tmp_path: Path) -> None:
    assert broken_laws(written(tmp_path, alone(B)), only_etcd=True) == []
    assert broken_laws(written(tmp_path, alone(A, B))) == []


def test_what_a_rank_wrote_last_tells_how_long_it_lived(tmp_path: Path) -> None:
    """Its supervisor stood still: it saw the end much later than it was."""
    folders = written(tmp_path, changed(alone(B), exits(B, 0), at_s=18))
    log = tmp_path / "node_b" / "incarnation_0" / "worker_1.log"
    log.parent.mkdir()
    log.touch()
    os.utime(log, (1e9 + 10, 1e9 + 10))
    assert broken_laws(folders) == []
    os.utime(log, (1e9 + 13, 1e9 + 13))
    assert "ranks of [0, 1] live at once (node a, ranks of 1)" in broken_laws(folders)


def test_clocks_may_be_apart_by_what_is_said(tmp_path: Path) -> None:
    late = changed(changed(a_run(), exits(B, 0), at_s=11.5), plans(1, B), at_s=11.6)
    folders = written(tmp_path, late)
    assert broken_laws(folders)
    assert broken_laws(folders, slack_s=0.8) == []
