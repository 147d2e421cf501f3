"""Silence of logs that tell steps: a warning at a multiple of the usual step, and nothing else."""

from dataclasses import replace

from faultrun.core.hangs import detector
from faultrun.core.hangs.attribution import Blamed, acts
from faultrun.core.hangs.limits import LOGGED, Beat, Watch
from faultrun.model.observed.hang import Activity, HangPolicy, PauseHistory, Suspicion
from faultrun.model.observed.progress import WorkPhase
from support.stories.silent_job import warning

LOOK_S = 1.0


class Job:
    def __init__(self, ranks: int = 2, longest_s: float = 0.0) -> None:
        self.beats = {rank: Beat(rank=rank, begun=True, stepped=True, step=0) for rank in range(ranks)}
        policy = HangPolicy(step=LOGGED)
        self.state = Watch(policy=policy, at_s=0.0, by_log=True, run=PauseHistory(longest_s=longest_s))
        self.now_s = 0.0
        self.longest_s = longest_s

    def passes(self, seconds: float, *, steps: int = 0, silent: tuple[int, ...] = ()) -> Suspicion | None:
        """So much time, in which each rank that is not ``silent`` prints so many steps at each look."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += LOOK_S
            if steps:
                for rank in self.beats.keys() - set(silent):
                    before = self.beats[rank]
                    self.beats[rank] = replace(before, step=before.step + steps, spoke_at_s=self.now_s)
            self.state = detector.observe(self.state, self.beats.values(), self.now_s, LOOK_S)
            if self.state.over is not None:
                self.longest_s = self.state.run.longest_s
            found = detector.suspect_logged(self.state, frozenset(range(3)))
            if found is not None:
                return found
        return None


def test_it_is_warned_of_after_three_times_the_longest_pause_and_never_acted_on() -> None:
    job = Job()
    assert job.passes(30, steps=10) is None
    assert job.passes(12) is None
    assert job.passes(10, steps=10) is None
    assert job.longest_s == 13.0
    found = job.passes(100)
    assert found is not None
    assert (found.silent_s, found.acts, found.final, found.acts_s) == (39.0, False, False, 0.0)
    assert (found.front, found.by_log) == ((0, 1, 2), True)
    for stance in Activity:
        assert not acts(Blamed(rank=0, stance=stance, why=""), replace(found, woken=9))
    job.state = detector.warned(job.state, warning(found))
    later = job.passes(100_000)
    assert later is not None
    assert not later.acts


def test_a_pause_of_a_life_before_is_remembered() -> None:
    job = Job(longest_s=40.0)
    assert job.passes(30, steps=10) is None
    assert job.passes(118) is None
    assert job.passes(3) is not None


def test_no_pause_that_came_before_is_warned_of_again() -> None:
    for evaluation_s in (3, 19, 50, 150):
        job = Job()
        job.passes(30, steps=10)
        until_s = job.now_s + evaluation_s
        while (found := job.passes(until_s - job.now_s)) is not None:
            job.state = detector.warned(job.state, warning(found))
        for _ in range(40):
            assert job.passes(30, steps=10) is None
            assert job.passes(evaluation_s) is None


def test_before_steps_have_a_usual_length_and_behind_the_last_one_nothing_is_unusual() -> None:
    job = Job()
    assert job.passes(600) is None
    assert job.passes(30, steps=10) is None
    job.beats = {rank: replace(beat, phase=WorkPhase.UNKNOWN) for rank, beat in job.beats.items()}
    assert job.passes(1800) is None


def test_the_rank_that_alone_stands_still_is_the_suspect() -> None:
    job = Job()
    job.passes(30, steps=10)
    found = job.passes(60, steps=10, silent=(1,))
    assert found is not None
    assert found.behind == (1, 2)
