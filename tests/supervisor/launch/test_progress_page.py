"""The progress page, written as a worker writes it and read as the supervisor does."""

import json
import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import pytest

from faultrun.core.phases.decide import decide
from faultrun.journal.append import line_of
from faultrun.model.events import Heartbeat, Timer, TimerFired, WorkersLost
from faultrun.model.observed.progress import RankStep, WorkPhase, phase_of
from faultrun.model.spec.output import Logs
from faultrun.model.wire import SLOT_BYTES, Progress, pack_word, unpack_progress
from faultrun.sdk.worker.progress_slot import ProgressSlot
from faultrun.supervisor.launch.progress_page import (
    LiveWorkers,
    ProgressPage,
    lost_workers,
    period_s,
    write_heartbeats,
)
from faultrun.supervisor.reactor import Reactor, RunClock
from support.stories.story import Story


def store(
    page: ProgressPage, slot: int, step: int, *, epoch: int = -1, phase: int = 0, count: int = 1
) -> None:
    with page.path.open("r+b") as file:
        file.seek(slot * SLOT_BYTES)
        file.write(pack_word(step, epoch, phase, 12.5, count))


def test_what_a_worker_stored_is_read_at_once(tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", (4, 5))
    assert page.steps() == ()
    store(page, 1, 1215, epoch=2, phase=2)
    assert page.steps() == (RankStep(rank=5, step=1215, epoch=2, phase=WorkPhase.COLLECTIVE),)
    store(page, 0, 0)
    assert page.steps()[0] == RankStep(rank=4, step=0)
    page.close()


def test_a_page_is_made_anew_for_each_incarnation(tmp_path: Path) -> None:
    before = ProgressPage(tmp_path / "progress", (0,))
    store(before, 0, 99)
    after = ProgressPage(tmp_path / "progress", (0,))
    assert after.steps() == ()
    before.close()
    after.close()


def test_a_phase_from_a_newer_sdk_is_unknown() -> None:
    assert phase_of(len(WorkPhase)) is WorkPhase.UNKNOWN
    assert phase_of(-1) is WorkPhase.UNKNOWN
    assert [phase_of(number) for number in range(len(WorkPhase))] == list(WorkPhase)


def test_a_slot_is_as_long_as_it_says_and_survives_packing() -> None:
    progress = Progress(step=2**62, epoch=-1, phase=3, at_monotonic_s=1e9, count=7)
    packed = pack_word(*astuple(progress))
    assert len(packed) <= SLOT_BYTES
    assert unpack_progress(packed.ljust(SLOT_BYTES, b"\0")) == progress


@pytest.mark.parametrize("slot", [b"\0" * SLOT_BYTES, pack_word(
    step=5, epoch=0, phase=0, at_monotonic_s=0, count=-1
).ljust(SLOT_BYTES, b"\0")])  # fmt: skip
def test_a_slot_that_nobody_wrote_is_none(slot: bytes) -> None:
    assert unpack_progress(slot) is None


def test_a_page_that_is_cut_costs_its_words_and_no_process(tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", (0, 1))
    slot = ProgressSlot(f"{page.path}:1")
    slot.stepped(7, 0)
    for left_bytes in (SLOT_BYTES + 9, 0):
        os.truncate(page.path, left_bytes)
        assert page.steps() == ()
        assert page.words() == {0: None, 1: None}
        assert page.reporting() == frozenset()
        assert slot.agreed_stop() == 0
        assert slot.agree_on_interval(4) == 4
        slot.stepped(8, 0)
        assert page.steps() == (RankStep(rank=1, step=8, epoch=0, phase=WorkPhase.COMPUTING),)
    page.close()


def test_a_step_goes_on_where_the_page_cannot_be_written(tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", (0,))
    slot = ProgressSlot(f"{page.path}:0")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        slot.stepped(7, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert page.steps() == ()
    page.close()


A_MOMENT_S = 0.001
DAY_S = 86400.0


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor(RunClock())
    yield reactor
    reactor.close()


def reports(path: Path, steps: list[int]) -> None:
    words = (Progress(step=step, epoch=-1, phase=0, at_monotonic_s=1.0, count=1) for step in steps)
    path.write_bytes(b"".join(pack_word(*astuple(word)).ljust(SLOT_BYTES, b"\0") for word in words))


def test_it_names_the_first_and_last_in_short_with_a_thousand_ranks(reactor: Reactor, tmp_path: Path) -> None:
    page = ProgressPage(tmp_path / "progress", tuple(range(1000)))
    reports(page.path, [10_000_000 + (rank * 7) % 1000 for rank in range(1000)])
    workers = LiveWorkers(reactor.clock, incarnation=3, page=page, pids=dict.fromkeys(range(1000), 1))
    write_heartbeats(reactor, workers, lambda _: A_MOMENT_S)
    (beat,) = reactor.wait()
    assert isinstance(beat, Heartbeat)
    assert beat.incarnation == 3
    assert beat.steps == (RankStep(rank=0, step=10_000_000), RankStep(rank=857, step=10_000_999))
    story = Story(2).begins()
    line = line_of(beat, decide(story.state, beat), {"node": "a-node-of-a-cluster", "boot": "0" * 16})
    assert len(json.dumps(line)) < 500
    page.close()


def test_it_beats_while_workers_run_whether_they_report_steps_or_not(reactor: Reactor) -> None:
    workers = LiveWorkers(reactor.clock)
    write_heartbeats(reactor, workers, lambda _: A_MOMENT_S)
    reactor.start_timer(Timer.HOLD, reactor.clock.now() + 30 * A_MOMENT_S, 3)
    assert [type(event) for event in reactor.wait()] == [TimerFired]
    workers.pids[0] = 1
    for _ in range(3):
        (beat,) = reactor.wait()
        assert isinstance(beat, Heartbeat)
        assert beat.steps == ()


def test_a_beat_changes_no_decision() -> None:
    story = Story(2).begins().all_run()
    before = story.state
    assert story.reported().state == before
    assert not story.steps[-1][1].actions


def lines_of(days: float) -> int:
    at_s, lines = 0.0, 0
    while at_s < days * DAY_S:
        at_s += period_s(at_s)
        lines += 1
    return lines


def test_an_hour_is_known_to_the_minute_and_a_month_is_no_long_journal() -> None:
    assert lines_of(1 / 24) == 60
    assert lines_of(1) < 400
    assert lines_of(30) < 4600


def test_how_far_the_workers_of_a_killed_supervisor_were_is_found_and_is_progress(tmp_path: Path) -> None:
    clock = RunClock(100.0)
    (tmp_path / "incarnation_0").mkdir()
    story = Story(2).begins().all_run()
    page = ProgressPage(tmp_path / "incarnation_0" / "progress", (0, 1))
    store(page, 0, 30)
    store(page, 1, 29)
    (lost,) = lost_workers(story.state, Logs(), tmp_path, clock)
    assert ([one.step for one in lost.steps], lost.by_log) == ([30, 29], False)
    assert lost.alive_s == pytest.approx(100.0, abs=5.0)
    story.starts().tell(lost)
    assert story.state.run.high_step == 30
    story.tell(WorkersLost(at_s=lost.at_s, incarnation=0, steps=(RankStep(rank=0, step=99),), by_log=True))
    assert story.state.run.high_step == 30, "what only a log tells refunds no restart"
    page.close()


def test_where_no_worker_ran_none_was_lost(tmp_path: Path) -> None:
    clock = RunClock()
    assert list(lost_workers(Story(1).state, Logs(), tmp_path, clock)) == []
    assert list(lost_workers(Story(1).starts().chose().state, Logs(), tmp_path, clock)) == []
    ended = Story(1).begins().all_run().returned(0).drained()
    assert list(lost_workers(ended.state, Logs(), tmp_path, clock)) == []
