"""Silence without the SDK: the log, the processor and the disk, all three."""

from dataclasses import replace

from faultrun.core.hangs import detector
from faultrun.core.hangs.limits import Looks, Pause, Sign, Watch
from faultrun.model.observed.hang import HangPolicy, Suspicion
from support.stories.silent_job import warning

LOOK_S = 1.0
GIVEN = HangPolicy(quiet_s=60.0, given=frozenset({"quiet"}))


class Job:
    def __init__(self, ranks: int = 2, policy: HangPolicy = GIVEN) -> None:
        self.signs = {rank: Sign(rank=rank, log_bytes=0, cpu_s=0.0, io_bytes=0) for rank in range(ranks)}
        self.state = Watch(policy=policy, at_s=0.0)
        self.now_s = 0.0

    def passes(
        self,
        seconds: int,
        *,
        logs: tuple[int, ...] = (),
        computes: tuple[int, ...] = (),
        reads: int | None = None,
        stopped: tuple[int, ...] = (),
    ) -> Suspicion | None:
        for _ in range(seconds):
            self.now_s += LOOK_S
            for rank, sign in self.signs.items():
                self.signs[rank] = Sign(
                    rank=rank,
                    log_bytes=sign.log_bytes + (rank in logs),
                    cpu_s=sign.cpu_s + (rank in computes),
                    io_bytes=sign.io_bytes + 10_000 * (rank == reads),
                )
            self.state = detector.observe_logs(self.state, self.signs.values(), self.now_s, LOOK_S)
            found = detector.suspect_quiet(self.state, frozenset(stopped))
            if found is not None:
                return found
        return None

    def silent(self, seconds: int) -> list[tuple[float, bool]]:
        """Each look at a silence of so long, answered by a warning, and whether it was acted on."""
        looks, until_s = [], self.now_s + seconds
        while (found := self.passes(round(until_s - self.now_s))) is not None:
            looks.append((found.silent_s, found.acts))
            if found.acts:
                break
            self.state = detector.warned(self.state, warning(found))
        return looks


def test_all_three_signs_for_the_whole_time() -> None:
    job = Job()
    assert job.silent(60) == [(30.0, False)]
    found = job.passes(2)
    assert found is not None
    assert (found.behind, found.acts, found.final) == ((0, 1), True, True)


def test_without_a_limit_of_the_user_it_is_warned_of_after_a_minute_and_acted_on_after_ten() -> None:
    job = Job(policy=HangPolicy())
    assert job.silent(1000) == [(60.0, False), (120.0, False), (240.0, False), (480.0, False), (600.0, True)]


def test_a_pause_that_was_come_through_is_told_and_raises_both_limits() -> None:
    job = Job(policy=HangPolicy())
    assert job.silent(100) == [(60.0, False)]
    job.passes(1, logs=(0,))
    assert job.state.over is not None
    assert (job.state.over.paused_s, job.state.over.warned) == (99.0, True)
    silent = job.silent(2000)
    assert (silent[0], silent[-1]) == ((198.0, False), (990.0, True))


def test_a_pause_that_was_seen_in_two_ways_is_told_of_once() -> None:
    job = Job()
    found = job.passes(100)
    assert found is not None
    by_log = replace(job.state, over=Pause(rank=0, paused_s=25.0, warned=True))
    job.state = detector.warned(job.state, warning(replace(found, silent_s=45.0)))
    job.passes(1, computes=(0, 1))
    assert job.state.over is None, "it was warned of by its log, which is silent"
    job.state = detector.warned(replace(by_log, over=None), warning(found))
    over, behind = detector.told_once((by_log, job.state))
    assert over == Pause(rank=0, paused_s=30.0, warned=True), "as long as the longer one was by then"
    assert [(watch.over, watch.looks) for watch in behind] == [(None, Looks())] * 2


def test_a_log_that_grows_on_any_rank_is_a_sign_of_life() -> None:
    assert Job().passes(300, logs=(0,)) is None


def test_ranks_that_all_compute_or_read_live() -> None:
    assert Job().passes(300, computes=(0, 1)) is None
    assert Job(1).passes(300, reads=0) is None


def test_a_rank_that_is_stopped_is_found_whatever_the_others_print() -> None:
    job = Job(3)
    for acts in (False, True):
        found = job.passes(60, logs=(0, 2), computes=(0, 2), stopped=(1,))
        assert found is not None
        assert (found.behind, found.acts) == ((1,), acts)
        job.state = detector.warned(job.state, warning(found))
    assert job.now_s == 61
    job.passes(1, logs=(1,))
    assert job.state.over == Pause(rank=1, paused_s=60.0, warned=True)


def test_a_rank_that_only_waits_while_the_others_print_is_nothing_to_be_warned_of() -> None:
    assert Job(3).passes(600, logs=(0,), computes=(0, 2)) is None


def test_the_idle_one_is_behind_and_not_its_peer_that_burns_a_processor_in_a_collective() -> None:
    found = Job().passes(120, computes=(0,))
    assert found is not None
    assert found.behind == (1,)


def test_time_in_which_the_observer_was_frozen_does_not_count() -> None:
    job = Job()
    job.passes(20)
    job.now_s += 86_400.0
    assert job.passes(8) is None
