"""Real data-parallel trainings whose ranks are killed, stopped and frozen, compared bit for bit."""

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.model.observed.progress import WorkPhase
from sdk.support.bits import (
    UNHURRIED_S,
    Job,
    Outcome,
    file_sums,
    kill_at_random,
    outcome,
    resume_env,
    sums,
    undisturbed,
)
from sdk.support.fake_supervisor import FakeSupervisor, supervised
from sdk.support.torch_imports import IMPORTS

pytestmark = [pytest.mark.torch, pytest.mark.slow]

KILLS = int(os.environ.get("FAULTRUN_TEST_KILLS", "2"))
"""How often a random rank is killed at a random moment; the acceptance runs use 200."""

WORKING = (WorkPhase.COMPUTING, WorkPhase.COLLECTIVE)
"""What a rank says of itself inside a step."""

Sums = dict[int, dict[int, tuple[str, str]]]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Sums]:
    job = Job(world_size=4, epochs=4, words=("dropout", "byhand"))
    return job, undisturbed(tmp_path_factory.mktemp("four"), job)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Sums]:
    job = Job(world_size=2, epochs=2, words=("dropout", "adam"))
    return job, undisturbed(tmp_path_factory.mktemp("two"), job)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[FakeSupervisor]:
    with supervised(tmp_path / "first", 2, imports=IMPORTS) as one:
        yield one


def assert_saved_as_if_undisturbed(left: Outcome, reference: Sums) -> None:
    assert left.saved, "nobody saved"
    for one in left.saved:
        step, rank, found = file_sums(one["path"])
        assert step == one["step"]
        assert found == reference[rank][step]


def assert_resumes(tmp_path: Path, job: Job, left: Outcome, reference: Sums) -> None:
    """The next incarnation starts with exactly the state of that step, and ends as the undisturbed run."""
    with supervised(tmp_path / "second", job.world_size, imports=IMPORTS) as second:
        job.start(second, tmp_path / "ckpt", env=resume_env(left.best))
        assert set(second.wait_ended()) == {0}, second.logs()
    step = int(left.best["step"])
    for rank in range(job.world_size):
        resumed = sums(tmp_path / "second", rank, "resumed")
        steps = sums(tmp_path / "second", rank)
        assert resumed[step][0] == reference[rank][step][0]
        assert min(steps, default=job.last_step + 1) == step + 1
        if steps:
            assert steps[job.last_step][0] == reference[rank][job.last_step][0]


@pytest.mark.parametrize("seed", range(KILLS))
def test_whichever_rank_is_killed_at_most_one_step_is_lost(
    tmp_path: Path, four: tuple[Job, Sums], seed: int
) -> None:
    job, reference = four
    chance = random.Random(seed)
    unhurried = replace(job, pace_s=UNHURRIED_S)
    with supervised(tmp_path / "first", job.world_size, imports=IMPORTS) as supervisor:
        unhurried.start(supervisor, tmp_path / "ckpt")
        victim = kill_at_random(supervisor, chance, unhurried)
        left = outcome(supervisor)
    assert left.codes == tuple(-9 if rank == victim else 143 for rank in range(job.world_size))
    assert_saved_as_if_undisturbed(left, reference)
    assert left.lost <= 1
    assert_resumes(tmp_path, job, left, reference)


def test_two_ranks_may_die_at_once(tmp_path: Path, four: tuple[Job, Sums]) -> None:
    job, reference = four
    with supervised(tmp_path / "first", job.world_size, imports=IMPORTS) as supervisor:
        replace(job, pace_s=UNHURRIED_S).start(supervisor, tmp_path / "ckpt")
        supervisor.wait_for(lambda: supervisor.step_of(0) >= 7, "step 7")
        supervisor.children[3].process.send_signal(signal.SIGSTOP)  # it does not leave for the other's sake
        supervisor.kill(0)
        supervisor.kill(3)
        left = outcome(supervisor)
    assert sorted(left.codes) == [-9, -9, 143, 143]
    assert left.lost <= 1
    assert_saved_as_if_undisturbed(left, reference)
    assert_resumes(tmp_path, job, left, reference)


def test_told_to_stop_nothing_is_lost(
    tmp_path: Path, two: tuple[Job, Sums], supervisor: FakeSupervisor
) -> None:
    job, reference = two
    replace(job, pace_s=UNHURRIED_S).start(supervisor, tmp_path / "ckpt")
    supervisor.wait_for(lambda: supervisor.step_of(1) >= 9, "step 9")
    for rank in range(2):
        supervisor.ask(rank)
    left = outcome(supervisor)
    assert left.codes == (143, 143)
    assert left.lost == 0
    assert_saved_as_if_undisturbed(left, reference)
    assert_resumes(tmp_path, job, left, reference)


def test_survivors_that_hang_in_a_collective_are_saved(
    tmp_path: Path, two: tuple[Job, Sums], supervisor: FakeSupervisor
) -> None:
    """A frozen peer keeps its sockets open: the all-reduce blocks, and nothing raises."""
    job, reference = two
    supervisor.asks_survivors = False
    stuck = Job(world_size=2, epochs=2, words=(*job.words, "freeze-1-6"))
    stuck.start(supervisor, tmp_path / "ckpt")
    supervisor.wait_for(lambda: supervisor.step_of(0) >= 5 and supervisor.is_frozen(1), "the freeze")
    supervisor.ask(0)
    assert supervisor.wait_ended(0) == [143]
    supervisor.kill(1)
    left = outcome(supervisor)
    assert [one["step"] for one in left.saved] == [5]
    assert_saved_as_if_undisturbed(left, reference)
    assert_resumes(tmp_path, job, left, reference)


def test_a_frozen_survivor_is_woken_and_saves_too(
    tmp_path: Path, two: tuple[Job, Sums], supervisor: FakeSupervisor
) -> None:
    job, reference = two
    supervisor.asks_survivors = False
    frozen = Job(world_size=2, epochs=2, words=(*job.words, "freeze-1-6"))
    frozen.start(supervisor, tmp_path / "ckpt")
    supervisor.wait_for(lambda: supervisor.is_frozen(1), "the freeze")
    supervisor.kill(0)
    supervisor.ask(1)  # SIGTERM, then SIGCONT
    left = outcome(supervisor)
    assert left.codes == (-9, 143)
    assert [one["step"] for one in left.saved] == [5]
    assert_saved_as_if_undisturbed(left, reference)


def test_a_peer_lost_between_the_update_and_the_end_of_the_step_loses_nothing(
    tmp_path: Path, supervisor: FakeSupervisor
) -> None:
    """The script talks to its peers after the update, before it says that the step is complete."""
    job = Job(world_size=2, words=("late", "kill-1-9"))
    reference = undisturbed(tmp_path, job)
    job.start(supervisor, tmp_path / "ckpt")
    left = outcome(supervisor)
    assert left.codes == (143, -9)
    assert [one["step"] for one in left.saved] == [8]
    assert_saved_as_if_undisturbed(left, reference)


def test_without_calls_of_step_the_next_batch_ends_a_step(tmp_path: Path, supervisor: FakeSupervisor) -> None:
    job = Job(world_size=2, words=("automatic", "kill-0-9"))
    job.start(supervisor, tmp_path / "ckpt")
    left = outcome(supervisor)
    assert [one["step"] for one in left.saved] == [8]


def test_before_the_first_step_there_is_nothing_to_save(tmp_path: Path, supervisor: FakeSupervisor) -> None:
    job = Job(world_size=2, words=("freeze-1-1",))
    job.start(supervisor, tmp_path / "ckpt")
    # Nobody saves a rank that has not come to ``protect`` yet: SIGTERM ends it as it ends any program.
    supervisor.wait_for(
        lambda: supervisor.is_frozen(1) and supervisor.phase_of(0) in WORKING, "the first step"
    )
    supervisor.kill(1)
    left = outcome(supervisor)
    assert left.codes == (143, -signal.SIGKILL)
    assert not left.saved
    (failed,) = supervisor.heard(0, "failed")
    assert "nothing to save" in failed["why"]


def test_killed_again_before_a_step_is_made_the_old_checkpoint_serves(
    tmp_path: Path, two: tuple[Job, Sums], supervisor: FakeSupervisor
) -> None:
    job, _ = two
    replace(job, pace_s=UNHURRIED_S).start(supervisor, tmp_path / "ckpt")
    supervisor.wait_for(lambda: supervisor.step_of(1) >= 5, "step 5")
    supervisor.kill(1)
    first = outcome(supervisor).best
    again = Job(world_size=2, epochs=2, words=(*job.words, f"freeze-1-{first['step'] + 1}"))
    with supervised(tmp_path / "second", 2, imports=IMPORTS) as second:
        again.start(second, tmp_path / "ckpt", env=resume_env(first))
        # A rank that is still on its way to its first step when another dies has nothing to save.
        second.wait_for(lambda: second.is_frozen(1) and second.phase_of(0) in WORKING, "the first step")
        second.kill(1)
        (saved,) = outcome(second).saved
    assert (saved["path"], saved["step"]) == (first["path"], first["step"])
