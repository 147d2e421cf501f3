"""A save into a used folder that is killed leaves files of two saves: never taken, and a copy not refused."""

import os
import shutil
from itertools import permutations
from pathlib import Path

import pytest

from checkpoints.formats.test_folder_of_parts import TORCH, chosen, put, refusals, survey, trainer

TRAINERS = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "trainer_state.json")
ACCELERATES = ("model.safetensors", "optimizer.bin", "scheduler.bin", "random_states_0.pkl")
REGISTERED = tuple(f"custom_checkpoint_{nth}.pkl" for nth in range(11))
BEGAN_S = 1_700_000_000.0


def written(folder: Path, *names: str, at_s: float = 0.0, each_s: float = 0.01) -> None:
    """Give the files times one after the other, from ``at_s`` on, ``each_s`` apart."""
    for nth, name in enumerate(names):
        time_ns = int((BEGAN_S + at_s + nth * each_s) * 1e9)
        os.utime(folder / name, ns=(time_ns, time_ns))


def by_trainer(root: Path, step: int) -> Path:
    folder = trainer(root, step, *TRAINERS[:-1], "rng_state_1.pth", "training_args.bin", "config.json")
    (folder / "config.json").write_text("{}")
    written(folder, "config.json", "training_args.bin", "rng_state_1.pth", *TRAINERS)
    return folder


def by_accelerate(root: Path, *names: str) -> Path:
    folder = put(root / "last", *ACCELERATES, *names)
    written(folder, *ACCELERATES, *names)
    return folder


def refused_for(root: Path) -> str:
    (why,) = refusals(root)
    return why.partition(" (if")[0]


@pytest.mark.parametrize("finished", [1, 2, 3])
@pytest.mark.parametrize("later_s", [0.2, 1.0, 3.0, 86_400.0])
def test_a_trainers_folder_half_written_anew_is_none(tmp_path: Path, finished: int, later_s: float) -> None:
    by_trainer(tmp_path, 10)
    written(by_trainer(tmp_path, 20), "config.json", *TRAINERS[:finished], at_s=later_s)
    assert chosen(tmp_path) == "checkpoint-10"
    assert refused_for(tmp_path) == (
        "checkpoint-20: its model.safetensors is newer than its trainer_state.json, which is written last: "
        "a later save into the same folder was not finished"
    )


@pytest.mark.parametrize("finished", range(1, len(ACCELERATES) + len(REGISTERED)))
@pytest.mark.parametrize("later_s", [0.25, 30.0])
def test_accelerates_folder_half_written_anew_is_none(tmp_path: Path, finished: int, later_s: float) -> None:
    folder = by_accelerate(tmp_path, *REGISTERED)
    assert chosen(tmp_path) == "last"
    written(folder, *(*ACCELERATES, *REGISTERED)[:finished], at_s=later_s)
    assert refused_for(tmp_path).startswith(
        "last: its model.safetensors is newer than its custom_checkpoint_"
    )


def test_without_registered_objects_the_random_states_are_the_mark(tmp_path: Path) -> None:
    folder = by_accelerate(tmp_path)
    for files, at_s in ((3, 30), (1, 60)):  # interrupted, and interrupted twice
        written(folder, *ACCELERATES[:files], at_s=at_s)
        assert "last: its model.safetensors is newer than its random_states_0.pkl" in refused_for(tmp_path)
    written(folder, "random_states_0.pkl", at_s=90)
    assert chosen(tmp_path) == "last"


def test_one_of_several_models_is_enough(tmp_path: Path) -> None:
    written(by_accelerate(tmp_path, "model_1.safetensors"), "model.safetensors", at_s=30)
    assert refused_for(tmp_path).startswith("last: its model.safetensors is newer")


def test_other_ranks_and_edited_settings_have_times_of_their_own(tmp_path: Path) -> None:
    folder = by_trainer(tmp_path, 10)
    written(folder, "config.json", "rng_state_1.pth", "training_args.bin", at_s=900)
    assert chosen(tmp_path) == "checkpoint-10"


def test_a_slow_save_and_a_slow_copy_by_name_are_whole(tmp_path: Path) -> None:
    written(by_trainer(tmp_path, 10), *TRAINERS, at_s=1, each_s=60)
    folder = by_trainer(tmp_path, 20)
    written(folder, *sorted(one.name for one in folder.iterdir()), at_s=1, each_s=60)
    assert chosen(tmp_path) == "checkpoint-20"


def test_a_quick_copy_in_any_order_is_whole(tmp_path: Path) -> None:
    folder = by_accelerate(tmp_path)
    for order in permutations(ACCELERATES):
        written(folder, *order)
        assert chosen(tmp_path) == "last", order


def test_a_slow_copy_that_began_with_trainers_mark_is_whole(tmp_path: Path) -> None:
    written(by_trainer(tmp_path, 10), *reversed(TRAINERS), at_s=1, each_s=60)
    assert chosen(tmp_path) == "checkpoint-10"


def test_a_slow_copy_is_taken_for_a_mixture_only_in_an_order_that_a_save_could_leave(tmp_path: Path) -> None:
    folder, refused = by_accelerate(tmp_path), set()
    for order in permutations(ACCELERATES):
        written(folder, *order, each_s=60)
        new = order[order.index("random_states_0.pkl") + 1 :]
        if survey(tmp_path).choice != survey(tmp_path / "none").choice and refusals(tmp_path):
            refused.add(order)
        assert (order in refused) == (bool(new) and set(new) == set(ACCELERATES[: len(new)])), order


def test_an_older_checkpoint_need_not_have_what_a_later_one_has(tmp_path: Path) -> None:
    for step in (1, 2):
        put(tmp_path / f"step_{step}", *ACCELERATES)
    newest = put(tmp_path / "step_3", *ACCELERATES, "scaler.pt")
    assert chosen(tmp_path) == "step_3"
    (newest / "optimizer.bin").write_bytes(TORCH[:-5])
    assert chosen(tmp_path) == "step_2"


def test_the_newest_by_step_must_have_what_older_ones_have_whatever_the_times(tmp_path: Path) -> None:
    put(tmp_path / "step_2", *ACCELERATES, "scaler.pt")
    newest = put(tmp_path / "step_3", *ACCELERATES)
    written(newest, *ACCELERATES)
    assert chosen(tmp_path) == "step_2"
    assert refusals(tmp_path) == ["step_3: it has no scaler.pt, which step_2 has"]


def test_a_copy_with_its_times_is_judged_as_the_first(tmp_path: Path) -> None:
    folder = by_accelerate(tmp_path / "one")
    shutil.copytree(folder, tmp_path / "two" / "last")
    assert chosen(tmp_path / "two") == "last"
    written(folder, *ACCELERATES[:2], at_s=30)
    shutil.copytree(folder, tmp_path / "three" / "last")
    assert "was not finished" in refusals(tmp_path / "three")[0]
