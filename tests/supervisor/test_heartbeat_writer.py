"""The line a minute of a training that goes well."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultrun.core.decide import decide
from faultrun.journal.append import line_of
from faultrun.model.events import Heartbeat, Timer, TimerFired
from faultrun.model.progress import RankStep
from faultrun.model.wire import SLOT_BYTES, Progress, pack_progress
from faultrun.supervisor.progress import Incarnation, ProgressPage, period_s, write_heartbeats
from faultrun.supervisor.reactor import Reactor, RunClock
from support.story import Story

A_MOMENT_S = 0.001
DAY_S = 86400.0


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor(RunClock())
    yield reactor
    reactor.close()


def reports(path: Path, steps: list[int]) -> None:
    words = (Progress(step=step, epoch=-1, phase=0, at_monotonic_s=1.0, count=1) for step in steps)
    path.write_bytes(b"".join(pack_progress(word).ljust(SLOT_BYTES, b"\0") for word in words))


def test_it_names_the_first_and_the_last_and_is_as_short_with_a_thousand_ranks(
    reactor: Reactor, tmp_path: Path
) -> None:
    page = ProgressPage(tmp_path / "progress", tuple(range(1000)))
    reports(page.path, [10_000_000 + (rank * 7) % 1000 for rank in range(1000)])
    workers = Incarnation(reactor.clock, number=3, page=page, pids=dict.fromkeys(range(1000), 1))
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
    workers = Incarnation(reactor.clock)
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
