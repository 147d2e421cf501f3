"""The node in memory and the real one answer every action alike: who trusts the fake may trust the real."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faultrun.model.actions import (
    FindRecoveryPoint,
    Kill,
    Prepare,
    Publish,
    RaiseAlarm,
    RequestGasp,
    StartTimer,
    Sweep,
    VerifySave,
)
from faultrun.model.events import (
    Drained,
    Event,
    GoGiven,
    IncarnationStarted,
    NothingWhole,
    PlanAdopted,
    Prepared,
    PrepareFailed,
    RecoveryPointChosen,
    RunFinished,
    SpawnFailed,
    Timer,
    TimerFired,
    WorkerExit,
    WorkerStarted,
)
from faultrun.model.exits import Exited, Signaled
from faultrun.model.observed.dying_gasp import GaspRequested, GaspVerified
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.spec.windows import Deadline
from faultrun.model.topology import BootId
from support.nodes.node_facts import node_fact
from support.stories.fake_world import SIGKILL, SIGTERM, Habit
from support.stories.real_and_fake_node import Asked, FakeNode, Make, RealNode, Wanted, plan_of, spawn_of
from support.stories.story import NODE

BOTH = pytest.mark.parametrize("make", [FakeNode, RealNode], ids=["fake", "real"])


@contextmanager
def asked(make: Make, folder: Path, wanted: Wanted | None = None) -> Iterator[Asked]:
    node = make(wanted or Wanted(), folder)
    try:
        yield Asked(node)
    finally:
        node.close()


@contextmanager
def running(make: Make, folder: Path, wanted: Wanted | None = None) -> Iterator[Asked]:
    """All workers run and are in their main loop."""
    wanted = wanted or Wanted()
    with asked(make, folder, wanted) as node:
        node.perform(spawn_of(wanted))
        node.until(IncarnationStarted)
        node.node.are_up(*range(wanted.workers))
        node.events.clear()
        yield node


def fact(standing: NodeStatus, *, incarnation: int = 0) -> NodeFact:
    return node_fact(
        node=NODE, boot=BootId("b"), at_s=0, incarnation=incarnation, status=standing, addr="127.0.0.1"
    )


def kinds(events: list[Event]) -> list[type]:
    return [type(event) for event in events]


@BOTH
def test_a_timer_fires_once_and_not_before_its_time(make: Make, tmp_path: Path) -> None:
    with asked(make, tmp_path) as node:
        at_s = node.node.now_s() + 0.05
        node.perform(StartTimer(timer=Timer.GRACE, at_s=at_s, incarnation=3))
        (fired,) = node.until(TimerFired)
        assert (fired.timer, fired.incarnation) == (Timer.GRACE, 3)
        assert fired.at_s >= at_s


@BOTH
def test_a_timer_of_the_same_name_is_replaced_and_others_are_not(make: Make, tmp_path: Path) -> None:
    with asked(make, tmp_path) as node:
        soon = node.node.now_s()
        node.perform(
            StartTimer(timer=Timer.GRACE, at_s=soon + 0.03, incarnation=0),
            StartTimer(timer=Timer.REAP, at_s=soon + 0.06, incarnation=1),
            StartTimer(timer=Timer.GRACE, at_s=soon + 0.09, incarnation=2),
        )
        fired = node.until(TimerFired, 2)
        assert [(one.timer, one.incarnation) for one in fired] == [(Timer.REAP, 1), (Timer.GRACE, 2)]


@BOTH
def test_every_rank_is_started_in_order_and_then_the_incarnation(make: Make, tmp_path: Path) -> None:
    with asked(make, tmp_path, Wanted(workers=3)) as node:
        node.perform(spawn_of(Wanted(workers=3), incarnation=4))
        (started,) = node.until(IncarnationStarted)
        assert kinds(node.events) == [WorkerStarted] * 3 + [IncarnationStarted]
        ranks = [event.rank for event in node.events if isinstance(event, WorkerStarted)]
        assert ranks == [0, 1, 2] == list(started.ranks)
        assert {event.incarnation for event in node.events} == {4}


@BOTH
def test_behind_the_first_rank_that_cannot_be_started_none_is_tried(make: Make, tmp_path: Path) -> None:
    wanted = Wanted(workers=4, unstartable=1)
    with asked(make, tmp_path, wanted) as node:
        node.perform(spawn_of(wanted))
        failed = node.until(SpawnFailed, 3)
        assert kinds(node.events) == [WorkerStarted, SpawnFailed, SpawnFailed, SpawnFailed]
        assert [event.rank for event in failed] == [1, 2, 3]
        assert all(event.errno and event.why for event in failed)


@BOTH
@pytest.mark.parametrize("status", [Exited(code=0), Exited(code=137), Signaled(signum=SIGKILL)], ids=repr)
def test_the_end_of_a_worker_is_told_as_the_kernel_told_it(
    make: Make, tmp_path: Path, status: Exited | Signaled
) -> None:
    with running(make, tmp_path) as node:
        node.node.end(1, status)
        (exit_,) = node.until(WorkerExit)
        assert (exit_.rank, exit_.status, exit_.incarnation, exit_.node) == (1, status, 0, NODE)


@BOTH
def test_deaths_are_told_in_their_order(make: Make, tmp_path: Path) -> None:
    with running(make, tmp_path, Wanted(workers=3)) as node:
        order = (2, 0, 1)
        for rank in order:
            node.node.end(rank, Signaled(signum=SIGKILL))
            (exit_,) = node.until(WorkerExit)
            assert exit_.rank == rank


@BOTH
def test_asked_to_save_the_obedient_leave_and_the_deaf_stay_until_killed(make: Make, tmp_path: Path) -> None:
    with running(make, tmp_path, Wanted(habits={1: Habit.IGNORES})) as node:
        deadline = Deadline.after(30, node.node.now_s())
        node.perform(RequestGasp(ranks=frozenset({0, 1}), deadline=deadline))
        (exit_,) = node.until(WorkerExit)
        assert (exit_.rank, exit_.status) == (0, Signaled(signum=SIGTERM))
        (said,) = [event for event in node.events if isinstance(event, GaspRequested)]
        assert (said.ranks, said.deadline, said.incarnation) == ((0, 1), deadline, 0)

        node.perform(Kill(ranks=frozenset({0, 1})))
        (exit_,) = node.until(WorkerExit)
        assert (exit_.rank, exit_.status) == (1, Signaled(signum=SIGKILL))


@BOTH
def test_to_signal_the_dead_is_harmless(make: Make, tmp_path: Path) -> None:
    with running(make, tmp_path) as node:
        node.node.end(0, Signaled(signum=SIGKILL))
        node.until(WorkerExit)
        node.perform(
            Kill(ranks=frozenset({0})), RequestGasp(ranks=frozenset({0}), deadline=Deadline(at_s=99))
        )
        (said,) = node.until(GaspRequested)
        assert said.ranks == (0,)


@BOTH
def test_a_sweep_is_answered_with_the_notes_of_the_dead(make: Make, tmp_path: Path) -> None:
    with running(make, tmp_path) as node:
        for rank in (1, 0):
            node.node.end(rank, Signaled(signum=SIGKILL))
            node.until(WorkerExit)
        node.perform(Sweep(incarnation=0, dead=(1, 0)))
        (drained,) = node.until(Drained)
        assert (drained.incarnation, drained.stragglers) == (0, ())
        assert [note.rank for note in drained.notes] == [1, 0]
        assert all(note.last_line for note in drained.notes)


@BOTH
@pytest.mark.parametrize(("torn", "answer"), [(False, RecoveryPointChosen), (True, NothingWhole)])
def test_a_survey_is_answered_by_a_point_or_by_the_reason_why_there_is_none(
    make: Make, tmp_path: Path, torn: bool, answer: type[RecoveryPointChosen | NothingWhole]
) -> None:
    with asked(make, tmp_path, Wanted(torn_checkpoint=torn)) as node:
        node.perform(FindRecoveryPoint(incarnation=2, continuing=True))
        (found,) = node.until(answer)
        assert found.incarnation == 2
        if isinstance(found, NothingWhole):
            assert found.why
        else:
            assert found.point is None


@BOTH
def test_a_plan_is_prepared_with_a_port(make: Make, tmp_path: Path) -> None:
    with asked(make, tmp_path) as node:
        node.perform(Prepare(plan=plan_of(Wanted(), 3)))
        (prepared,) = node.until(Prepared)
        assert prepared.incarnation == 3
        assert 1024 < prepared.master_port < 65536


@BOTH
def test_a_plan_that_cannot_be_prepared_says_with_which_code_the_run_ends(make: Make, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        wanted = Wanted(taken_port=server.getsockname()[1])
        with asked(make, tmp_path, wanted) as node:
            node.perform(Prepare(plan=plan_of(wanted)))  # at a restart it is tried for a minute
            (failed,) = node.until(PrepareFailed)
            assert (failed.incarnation, failed.exit_code) == (0, 64)
            assert "taken" in failed.why


@BOTH
def test_the_agreement_answers_plan_go_and_end(make: Make, tmp_path: Path) -> None:
    with asked(make, tmp_path) as node:
        node.perform(Publish(fact=fact(NodeStatus.JOINED, incarnation=-1)))
        (adopted,) = node.until(PlanAdopted)
        assert adopted.incarnation == adopted.plan.incarnation == 0
        node.perform(Publish(fact=fact(NodeStatus.READY)))
        (go,) = node.until(GoGiven)
        assert (go.incarnation, go.master_addr) == (0, "127.0.0.1")
        node.perform(Publish(fact=fact(NodeStatus.DONE)))
        (end,) = node.until(RunFinished)
        assert end.exit_code == 0


@BOTH
def test_a_save_is_read_back(make: Make, tmp_path: Path) -> None:
    with asked(make, tmp_path) as node:
        node.perform(VerifySave(incarnation=1, rank=0, path="nowhere/gasp_torn"))
        (verified,) = node.until(GaspVerified)
        assert (verified.incarnation, verified.rank, verified.whole) == (1, 0, False)
        assert verified.path == "nowhere/gasp_torn"


@BOTH
def test_an_alarm_needs_no_answer_where_there_is_one_node(make: Make, tmp_path: Path) -> None:
    with asked(make, tmp_path) as node:
        node.perform(RaiseAlarm(incarnation=0, why="rank 1 died"))
        node.perform(StartTimer(timer=Timer.GRACE, at_s=0, incarnation=0))
        node.until(TimerFired)
        assert kinds(node.events) == [TimerFired]
