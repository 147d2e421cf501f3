"""Real FSDP2 trainings whose ranks are killed and stopped, compared bit for bit. No script names a shard."""

import os
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sdk.support.bits import UNHURRIED_S, Job, Outcome, kill_at_random, outcome, sums, undisturbed
from sdk.support.checksums import checksums, local_tensors
from sdk.support.fake_supervisor import supervised
from sdk.support.torch_imports import IMPORTS
from support.places import TESTS

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = TESTS / "sdk" / "scripts" / "train_fsdp.py"
KILLS = int(os.environ.get("FAULTRUN_TEST_KILLS", "2"))

Sums = dict[int, dict[int, tuple[str, str]]]


def fsdp(*words: str, world_size: int = 2, epochs: int = 1) -> Job:
    return Job(world_size=world_size, epochs=epochs, words=words, script=SCRIPT)


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Sums]:
    job = fsdp()
    return job, undisturbed(tmp_path_factory.mktemp("pure"), job)


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Sums]:
    job = fsdp("hybrid", world_size=4, epochs=3)
    return job, undisturbed(tmp_path_factory.mktemp("hybrid"), job)


def told_to_stop(directory: Path, job: Job, at_step: int) -> Outcome:
    """What is left when every rank is asked to save and leave, one after another."""
    with supervised(directory / "first", job.world_size, imports=IMPORTS) as supervisor:
        replace(job, pace_s=UNHURRIED_S).start(supervisor, directory / "ckpt")
        last = job.world_size - 1
        supervisor.wait_for(lambda: supervisor.step_of(last) >= at_step, f"step {at_step}")
        for rank in range(job.world_size):
            supervisor.ask(rank)
        return outcome(supervisor)


def assert_saved_as_if_undisturbed(saved: Mapping[str, Any], reference: Sums) -> None:
    state = torch.load(saved["path"], weights_only=True)
    model, averages = local_tensors(state["model"]), local_tensors(state["objects"]["averages"])
    everything = {**model, **{f"average.{name}": one for name, one in averages.items()}}
    assert checksums(everything, local_tensors(state["optimizer"])) == reference[state["rank"]][saved["step"]]


def assert_ends_as_if_undisturbed(
    directory: Path, job: Job, step: int, files: Mapping[int, str], reference: Sums
) -> None:
    """Every rank resumes from its file, makes the steps that are left, and ends as if nothing had been."""
    with supervised(directory / "second", job.world_size, imports=IMPORTS) as second:
        for rank in range(job.world_size):
            env = {
                "CKPT": str(directory / "ckpt"),
                "OUT": str(second.directory),
                "FAULTRUN_RESUME_FROM": files[rank],
                "FAULTRUN_RESUME_STEP": str(step),
                "FAULTRUN_INCARNATION": "1",
            }
            second.start(rank, SCRIPT, str(job.epochs), str(job.pace_s), *job.words, env=env)
        assert set(second.wait_ended()) == {0}, second.logs()
    for rank in range(job.world_size):
        assert sums(directory / "second", rank, "resumed")[step][0] == reference[rank][step][0]
        steps = sums(directory / "second", rank)
        assert min(steps) == step + 1
        assert all(steps[one][0] == reference[rank][one][0] for one in steps)


@pytest.mark.parametrize("at_step", (5, 11))
def test_told_to_stop_all_ranks_save_the_same_step(
    tmp_path: Path, pure: tuple[Job, Sums], at_step: int
) -> None:
    job, reference = pure
    left = told_to_stop(tmp_path, job, at_step)
    assert left.codes == (143, 143)
    assert left.lost == 0
    assert {one["step"] for one in left.saved} == {left.high_step}
    assert [one["replica_group"] for one in left.saved] == [[0], [1]]
    for one in left.saved:
        assert_saved_as_if_undisturbed(one, reference)
    files = {one["replica_group"][0]: one["path"] for one in left.saved}
    assert_ends_as_if_undisturbed(tmp_path, job, left.high_step, files, reference)


def test_asked_to_save_and_go_on_all_ranks_save_the_same_step(tmp_path: Path, pure: tuple[Job, Sums]) -> None:
    """The copies are made while the main threads compute with gathered parameters, and disturb nothing."""
    job, reference = pure
    with supervised(tmp_path / "first", job.world_size, imports=IMPORTS) as supervisor:
        replace(job, pace_s=UNHURRIED_S).start(supervisor, tmp_path / "ckpt")  # no request is a step late
        for at_step in (4, 12):
            supervisor.wait_for(lambda at=at_step: supervisor.step_of(1) >= at, f"step {at_step}")  # type: ignore[misc]
            for rank in range(2):
                supervisor.say(rank, "save", deadline_s=40.0)
        left = outcome(supervisor)
    assert left.codes == (0, 0)
    assert len(left.saved) == 4
    assert len({one["step"] for one in left.saved}) == 2
    for one in left.saved:
        assert_saved_as_if_undisturbed(one, reference)
    assert [sums(tmp_path / "first", rank) for rank in range(2)] == [reference[rank] for rank in range(2)]


@pytest.mark.parametrize("seed", range(KILLS))
def test_of_replicated_shards_at_most_one_step_is_lost(
    tmp_path: Path, hybrid: tuple[Job, Sums], seed: int
) -> None:
    job, reference = hybrid
    unhurried = replace(job, pace_s=UNHURRIED_S)
    with supervised(tmp_path / "first", job.world_size, imports=IMPORTS) as supervisor:
        unhurried.start(supervisor, tmp_path / "ckpt")
        victim = kill_at_random(supervisor, random.Random(seed), unhurried)
        left = outcome(supervisor)
    assert left.codes == tuple(-9 if rank == victim else 143 for rank in range(4))
    for one in left.saved:
        assert_saved_as_if_undisturbed(one, reference)
    files = {(rank, one["step"]): one["path"] for one in left.saved for rank in one["replica_group"]}
    steps = [step for step in range(left.high_step + 1) if all((rank, step) in files for rank in range(4))]
    assert steps, [(one["step"], one["replica_group"]) for one in left.saved]
    assert left.high_step - max(steps) <= 1
    mine = {rank: files[rank, max(steps)] for rank in range(4)}
    assert_ends_as_if_undisturbed(tmp_path, job, max(steps), mine, reference)


@pytest.mark.parametrize(
    "words",
    (("mixed", "accumulate"), ("offload", "unclipped"), ("compiled",), ("tensor", "unclipped")),
    ids="-".join,
)
def test_other_ways_to_spread_a_model_are_saved_and_brought_back(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    job = fsdp(*words)
    reference = undisturbed(tmp_path, job)
    left = told_to_stop(tmp_path, job, 5)
    assert left.codes == (143, 143)
    assert {one["step"] for one in left.saved} == {left.high_step}
    for one in left.saved:
        assert_saved_as_if_undisturbed(one, reference)
    files = {one["replica_group"][0]: one["path"] for one in left.saved}
    assert_ends_as_if_undisturbed(tmp_path, job, left.high_step, files, reference)
