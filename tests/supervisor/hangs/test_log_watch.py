"""The first step that a log tells of, where no rank reports its own: a real reactor and real files."""

import gc
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.model.events import Event, IncarnationStarted, Timer, TimerFired
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.run import Phase, Run, Step
from faultrun.supervisor.hangs.log_watch import LogWatch, _Life
from faultrun.supervisor.launch.progress_page import LiveWorkers
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.workers.logs.log_files import LogFiles
from support.stories.story import first_plan, in_phase


class Scene:
    def __init__(self, folder: Path) -> None:
        self.reactor = Reactor(RunClock())
        self.files = LogFiles(log_dir=folder, worker_name="worker", incarnation=0)
        self.files.folder.mkdir()
        workers = LiveWorkers(clock=self.reactor.clock, logs=self.files)
        self.page = workers.new_page(self.files, (0, 1))
        self.watch = LogWatch(self.reactor, workers)

    def prints(self, rank: int, text: str) -> None:
        with self.files.worker(rank).open("a") as log:
            log.write(text)

    def starts(self, incarnation: int, kept: frozenset[int] = frozenset()) -> None:
        run = Run(plan=first_plan(2, incarnation=incarnation, kept=kept))
        state = replace(in_phase(Phase.RUNNING, 2), run=run)
        started = IncarnationStarted(at_s=0.0, incarnation=incarnation, ranks=(0, 1), master_port=1)
        self.watch.tell(started, Step(state=state, why=""))

    def next_event(self, within_s: float = 60.0) -> Event:
        self.reactor.start_timer(Timer.REAP, self.reactor.now() + within_s, 99)
        return self.reactor.wait()[0]

    def first_step(self) -> tuple[int, int | None]:
        found = self.next_event()
        assert isinstance(found, FirstStepLogged)
        return found.rank, found.step


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.reactor.close()
    scene.page.close()


def test_a_new_process_beside_those_that_stayed_has_not_done_what_the_last_printed(scene: Scene) -> None:
    scene.prints(0, "step 7 loss 0.2\n")
    scene.prints(1, "step 7 loss 0.2\n")
    scene.starts(1, kept=frozenset({0}))
    scene.prints(0, "step 8 loss 0.2\n")
    scene.prints(1, "step 9 loss 0.1\n")
    assert scene.first_step() == (1, 9)


def test_a_log_that_was_cut_is_read_on_from_its_new_beginning(scene: Scene) -> None:
    scene.prints(1, "step 7 loss 0.2\n" * 100)
    scene.starts(1, kept=frozenset({0}))
    os.truncate(scene.files.worker(1), 0)
    scene.prints(1, "faultrun: 1600 bytes were cut here\nstep 9 loss 0.1\n")
    assert scene.first_step() == (1, 9)


def test_where_all_begin_logs_are_read_from_their_beginnings_and_kept_of_the_last_life(scene: Scene) -> None:
    scene.prints(1, "step 3 loss 0.1\nstep 4 loss 0.1\n")
    for life in range(3):
        scene.starts(life)
        assert scene.first_step() == (1, 3)
    gc.collect()
    assert [one.incarnation for one in gc.get_objects() if type(one) is _Life] == [2]


def test_while_no_rank_reports_its_log_tells_how_far_it_is(scene: Scene) -> None:
    scene.prints(0, "".join(f"iter {n}: loss 0.5\n" for n in range(1, 8)))
    scene.starts(0)
    scene.next_event()
    assert [(beat.rank, beat.begun, beat.step) for beat in scene.watch.beats()] == [(0, True, 7)]


def test_preparation_is_no_first_step(scene: Scene) -> None:
    scene.starts(0)
    scene.prints(0, "Step 1/3: tokenizing\nStep 2/3: indexing\n")
    assert not isinstance(scene.next_event(within_s=0.5), FirstStepLogged)
    scene.prints(0, "step 21 loss 0.5\n")
    assert scene.first_step() == (0, 21)


def test_training_has_not_begun_while_a_rank_has_an_earlier_step_to_come(scene: Scene) -> None:
    scene.starts(0)
    scene.prints(0, "loading\n")
    scene.prints(1, "step 1 loss 0.2\nstep 2 loss 0.1\n")
    early = scene.watch.place()
    scene.prints(0, "step 1 loss 0.2\nstep 2 loss 0.1\n")
    scene.prints(1, "step 3 loss 0.1\n")
    later = scene.watch.place()
    assert (scene.watch.step_at(early), scene.watch.step_at(later)) == (None, 3)


def test_what_is_done_before_the_logs_of_a_life_are_known_is_not_of_the_last_one(scene: Scene) -> None:
    scene.starts(0)
    scene.prints(0, "step 90 loss 0.2\n")
    assert scene.first_step() == (0, 90)
    for phase in (Phase.DRAINING, Phase.RUNNING):
        told = TimerFired(at_s=0.0, incarnation=0, timer=Timer.REAP)
        scene.watch.tell(told, Step(state=in_phase(phase, 2), why=""))
    place = scene.watch.place()
    scene.files.worker(0).write_text("step 3 loss 0.2\n")
    scene.starts(1)
    assert (scene.watch.step_at(place), scene.first_step()) == (3, (0, 3))


def test_a_rank_that_seldom_tells_its_step_waits_for_nobody(scene: Scene) -> None:
    scene.starts(0)
    scene.prints(1, "step 49 loss 0.2\nstep 50 loss 0.1\n")
    place = scene.watch.place()
    scene.prints(0, "step 100 loss 0.2\n")
    assert scene.watch.step_at(place) == 50
