"""Real data-parallel MindSpore trainings whose ranks are killed and stopped, compared bit for bit."""

import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from sdk.support.fake_supervisor import FakeSupervisor
from sdk.support.mindspore_job import (
    LAST_STEP,
    START_S,
    STEPS_PER_EPOCH,
    MindSporeJob,
    file_numbers,
    file_sum,
    running,
    sums,
)

pytestmark = [pytest.mark.mindspore, pytest.mark.slow, pytest.mark.timeout(600)]

UNHURRIED_S = 0.05
"""A step of a training that is told something at a certain step: the test may see that one late."""

KILLS = int(os.environ.get("FAULTRUN_TEST_MINDSPORE_KILLS", "1"))
"""How often a random rank is killed at a random moment; the acceptance runs use 40."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Step -> checksum of a run that nothing happens to; the same on both ranks."""
    directory = tmp_path_factory.mktemp("undisturbed")
    with running(directory / "run", MindSporeJob(), directory / "ckpt") as supervisor:
        assert supervisor.wait_ended(timeout_s=START_S) == [0, 0]
    assert sums(directory / "run", 0) == sums(directory / "run", 1)
    return sums(directory / "run", 0)


def kill_at_random(supervisor: FakeSupervisor, chance: random.Random) -> int:
    rank = chance.randrange(supervisor.world_size)
    step = chance.randrange(2, LAST_STEP // 2)
    supervisor.wait_for(lambda: supervisor.step_of(rank) >= step, f"step {step}", START_S)
    threading.Event().wait(chance.random() * UNHURRIED_S)
    supervisor.kill(rank)
    return rank


def place_of(step: int) -> tuple[int, int]:
    """Epoch and step in it, both from 1."""
    return (step - 1) // STEPS_PER_EPOCH + 1, (step - 1) % STEPS_PER_EPOCH + 1


def saves(supervisor: FakeSupervisor) -> list[dict[str, Any]]:
    return [one for rank in range(supervisor.world_size) for one in supervisor.heard(rank, "saved")]


def high_step(supervisor: FakeSupervisor) -> int:
    return max(supervisor.step_of(rank) for rank in range(supervisor.world_size))


def assert_resumes(
    tmp_path: Path, job: MindSporeJob, saved: dict[str, Any], reference: dict[int, str]
) -> None:
    env = {"FAULTRUN_RESUME_FROM": saved["path"], "FAULTRUN_RESUME_STEP": str(saved["step"])}
    with running(tmp_path / "second", job, tmp_path / "ckpt", env) as second:
        assert second.wait_ended(timeout_s=START_S) == [0, 0], second.logs()
        assert [second.step_of(rank) for rank in range(2)] == [LAST_STEP, LAST_STEP]
    for rank in range(2):
        steps = sums(tmp_path / "second", rank)
        assert min(steps) == saved["step"] + 1
        assert steps == {step: crc for step, crc in reference.items() if step > saved["step"]}


@pytest.mark.parametrize("kind", ["default", "every-step"])
@pytest.mark.parametrize("seed", range(KILLS))
def test_whichever_rank_is_killed_at_most_one_step_is_lost(
    tmp_path: Path, reference: dict[int, str], seed: int, kind: str
) -> None:
    job = MindSporeJob(words=(kind, "periodic") if kind == "default" else (kind,), pace_s=UNHURRIED_S)
    with running(tmp_path / "first", job, tmp_path / "ckpt") as supervisor:
        victim = kill_at_random(supervisor, random.Random(f"{seed} {kind}"))
        codes = supervisor.wait_ended()
        assert codes == [-9 if rank == victim else 143 for rank in range(2)], supervisor.logs()
        (saved,) = saves(supervisor)
        lost = high_step(supervisor) - saved["step"]
        finished_by_all = min(supervisor.step_of(rank) for rank in range(2))
    assert lost <= 1
    assert file_sum(saved["path"]) == reference[saved["step"]]
    if kind == "every-step":
        assert saved["step"] >= finished_by_all, "no step that all had finished is lost"
        written = {path for path in (tmp_path / "ckpt").rglob("*") if path.is_file()}
        assert written == {Path(saved["path"]), Path(f"{saved['path']}.manifest.json")}, "nothing before"
        assert b"tft_updates_begun" not in Path(saved["path"]).read_bytes(), "no optimizer was marked"
    if (seed, kind) == (0, "every-step"):  # the campaign in tests/faults goes on with the other kind
        assert_resumes(tmp_path, MindSporeJob(words=(kind,)), saved, reference)


def test_told_to_stop_nothing_is_lost_and_mindio_files_are_where_they_belong(
    tmp_path: Path, reference: dict[int, str]
) -> None:
    job = MindSporeJob(words=("tft",), pace_s=UNHURRIED_S)
    with running(tmp_path / "first", job, tmp_path / "ckpt") as supervisor:
        supervisor.wait_for(lambda: supervisor.step_of(1) >= 18, "step 18", START_S)
        for rank in range(2):
            supervisor.ask(rank)
        assert supervisor.wait_ended() == [143, 143]
        found = saves(supervisor)
        assert max(one["step"] for one in found) == high_step(supervisor)
    for rank, saved in enumerate(found):
        step = saved["step"]
        epoch, step_in_epoch = place_of(step)
        place = f"tft_saved_checkpoints-step_{step}/rank_{rank}/ttp_rank_{rank}-{epoch}_{step_in_epoch}.ckpt"
        assert saved["path"] == str(tmp_path / "ckpt" / place)
        assert file_sum(saved["path"]) == reference[step]
        assert file_numbers(saved["path"]) == {
            "epoch_num": epoch,
            "step_num": step,
            "cur_rank": rank,
            "batch_num": STEPS_PER_EPOCH,
            "global_step": step,
        }
        manifest = json.loads(Path(saved["path"] + ".manifest.json").read_text())
        assert (manifest["step"], manifest["epoch"], manifest["step_in_epoch"]) == (
            step,
            epoch,
            step_in_epoch,
        )


def test_in_pynative_mode_the_exception_checkpoint_of_old_scripts_works(
    tmp_path: Path, reference: dict[int, str]
) -> None:
    job = MindSporeJob(mode=1, words=("exception",), pace_s=UNHURRIED_S)
    with running(tmp_path / "first", job, tmp_path / "ckpt") as supervisor:
        supervisor.wait_for(lambda: supervisor.step_of(0) >= 5, "step 5", START_S)
        supervisor.kill(0)
        supervisor.wait_ended()
        (saved,) = saves(supervisor)
    step = saved["step"]
    epoch, step_in_epoch = place_of(step)
    name = f"net-{epoch}_{step_in_epoch}_breakpoint.ckpt"
    assert Path(saved["path"]) == tmp_path / "ckpt" / "rank_1" / name
    assert file_sum(saved["path"]) == reference[step]
    assert file_numbers(saved["path"]) == {"epoch_num": epoch, "step_num": step, "global_step": step}
