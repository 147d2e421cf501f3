"""Files that only together are a checkpoint: their directory is one, and whole only if all of it is."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.checkpoints.find import Findings, scan_and_choose
from faultrun.checkpoints.registry import builtin_formats
from faultrun.core.recovery.choose import Chosen, NoneUsable, NothingFound
from faultrun.core.recovery.need import Need, World
from faultrun.model.observed.saves import SavesSeen, SeenSave
from support.checkpoints.catalogs import catalog_of, survey_of
from support.checkpoints.torch_files import ZIP
from support.places import DATA

MODEL = (DATA / "safetensors" / "model.safetensors").read_bytes()
TORCH = ZIP.read_bytes()
TRAINER = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin")
ACCELERATE = ("model.safetensors", "optimizer.bin", "scheduler.bin", "sampler.bin", "random_states_0.pkl")
UNKNOWN = "it has no file of the {}, and no other save tells whether its script saves one"
DEEPSPEED = (
    "mp_rank_00_model_states.pt",
    "zero_pp_rank_0_mp_rank_00_optim_states.pt",
    "zero_pp_rank_1_mp_rank_00_optim_states.pt",
)


def put(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes({"safetensors": MODEL, "json": b"{}"}.get(name.rpartition(".")[2], TORCH))
    return folder


def trainer(root: Path, step: int, *names: str) -> Path:
    folder = root / f"checkpoint-{step}"
    put(folder, *(names or TRAINER))
    state = {"best_global_step": 3, "epoch": step / 8, "global_step": step, "log_history": [{"step": 1}]}
    (folder / "trainer_state.json").write_text(json.dumps(state, indent=2))
    return folder


def survey(root: Path) -> Findings:
    return survey_of(root, formats=builtin_formats())


def chosen(root: Path) -> str:
    choice = survey(root).choice
    assert isinstance(choice, Chosen), choice
    return str(Path(choice.point.path).relative_to(root))


def refusals(root: Path) -> list[str]:
    choice = survey(root).choice
    assert isinstance(choice, Chosen | NoneUsable)
    return [f"{Path(one.path).name}: {one.why}" for one in choice.refused]


def choice_of_one_that_saved(root: Path, folder: Path, *names: str) -> Chosen | NoneUsable | NothingFound:
    """The choice of a run that was seen to save these files at step 10, and to train on."""
    catalog = catalog_of(root, builtin_formats())
    catalog.seen = SavesSeen(saves=(SeenSave(files=tuple(f"{folder}/{one}" for one in names), step=10),))
    catalog.reached(13)
    return scan_and_choose(catalog, Need(world=World(size=1))).choice


def test_the_directory_is_the_checkpoint_and_tells_its_step_and_epoch(tmp_path: Path) -> None:
    for step in (10, 20):
        trainer(tmp_path, step)
    entries = survey(tmp_path).scan.entries
    assert sorted((Path(one.path).name, one.global_step, one.epoch) for one in entries) == [
        ("checkpoint-10", 10, 1), ("checkpoint-20", 20, 2),
    ]  # fmt: skip
    assert chosen(tmp_path) == "checkpoint-20"


@pytest.mark.parametrize("name", [*TRAINER, "trainer_state.json"])
def test_one_torn_file_refuses_the_directory_by_the_files_name(tmp_path: Path, name: str) -> None:
    trainer(tmp_path, 10)
    torn = trainer(tmp_path, 20) / name
    torn.write_bytes(torn.read_bytes()[:-20])
    assert chosen(tmp_path) == "checkpoint-10"
    (refused,) = refusals(tmp_path)
    assert refused.startswith(f"checkpoint-20: its {name}: ")


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("name", [*TRAINER[:4], "trainer_state.json"])
def test_a_file_that_is_gone_refuses_the_directory(tmp_path: Path, name: str, *, alone: bool) -> None:
    if not alone:
        trainer(tmp_path, 10)
    (trainer(tmp_path, 20) / name).unlink()
    why = UNKNOWN.format(name.partition(".")[0]) if alone else f"it has no {name}, which checkpoint-10 has"
    why = "it has no file of the model" if name == "model.safetensors" else why
    assert refusals(tmp_path) == [f"checkpoint-20: {why}"]
    assert alone or chosen(tmp_path) == "checkpoint-10"


@pytest.mark.parametrize("folder", ["checkpoint-{}", "step_{}"])
@pytest.mark.parametrize("names", [
    "model.pt scheduler.pt", "model.pt optimizer.pt rng_state.pth", "model.pt optimizer.pt scheduler.pt",
    "pytorch_model.bin optimizer.pt scheduler.pt trainer_state.json", "pytorch_model.bin scheduler.bin",
    "pytorch_model.bin optimizer.pt scheduler.pt training_args.bin", "pytorch_model.bin rng_state.pth",
    "pytorch_model.bin optimizer.bin scheduler.bin", "pytorch_model_fsdp.bin random_states_0.pkl",
    "model.safetensors sampler.bin", "model.safetensors scheduler.bin random_states_0.pkl",
])  # fmt: skip
def test_other_saves_tell_what_a_script_saves(tmp_path: Path, names: str, folder: str) -> None:
    every = names.split()
    first, *others = (put(tmp_path / folder.format(step), *every) for step in (10, 20, 30))
    assert chosen(tmp_path) == others[1].name
    (others[1] / every[-1]).unlink()
    assert chosen(tmp_path) == others[0].name
    for save in others:
        shutil.rmtree(save)
    assert not isinstance(survey(tmp_path).choice, NothingFound), "files that are there are no beginning"
    assert isinstance(choice_of_one_that_saved(tmp_path, first, *every), Chosen)
    first.rename(tmp_path / folder.format(40))
    (tmp_path / folder.format(40) / every[-1]).unlink()
    seen = choice_of_one_that_saved(tmp_path, first, *every)
    assert every[-1].endswith(".json") or not isinstance(seen, Chosen), "what was seen is gone, and told"


def test_siblings_show_what_is_missing_where_the_files_there_do_not(tmp_path: Path) -> None:
    trainer(tmp_path, 10, *TRAINER, "scaler.pt")
    trainer(tmp_path, 20)
    put(tmp_path / "checkpoint-30", "model.safetensors")
    assert chosen(tmp_path) == "checkpoint-10"
    assert refusals(tmp_path)[0].startswith("checkpoint-30: it has no ")
    assert refusals(tmp_path)[1] == "checkpoint-20: it has no scaler.pt, which checkpoint-10 has"


def test_a_model_in_a_numbered_folder_may_be_an_export_and_is_no_beginning(tmp_path: Path) -> None:
    put(tmp_path / "final", "model.safetensors", "training_args.bin")
    assert isinstance(survey(tmp_path).choice, NothingFound)
    put(tmp_path / "step_20", "model.safetensors", "training_args.bin")
    assert "it is a model that was exported" in refusals(tmp_path)[0]


def test_a_save_that_was_cut_short_is_no_checkpoint_and_no_part_of_it_is_one(tmp_path: Path) -> None:
    (trainer(tmp_path, 40) / "checkpoint-is-incomplete.txt").touch()
    assert isinstance(survey(tmp_path).choice, NothingFound)
    put(tmp_path / "acc" / "checkpoint_3", *ACCELERATE[:-1])
    assert refusals(tmp_path) == [f"checkpoint_3: {UNKNOWN.format('random_states')}"]
    (trainer(tmp_path, 20) / "trainer_state.json").unlink()
    later = trainer(tmp_path, 30)
    (later / "optimizer.pt").write_bytes(TORCH[:-5])
    assert "checkpoint-20: it has no trainer_state.json, which checkpoint-30 has" in refusals(tmp_path)


def test_what_lost_its_model_and_its_end_mark_is_refused_and_not_begun_anew(tmp_path: Path) -> None:
    folder = trainer(tmp_path, 20)
    for name in ("model.safetensors", "optimizer.pt", "trainer_state.json"):
        (folder / name).unlink()
    assert refusals(tmp_path) == ["checkpoint-20: it has no file of the model"]


def test_every_rank_and_every_shard_must_be_there(tmp_path: Path) -> None:
    ranks = [f"rng_state_{rank}.pth" for rank in range(3)]
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    folder = trainer(tmp_path, 20, *shards, "optimizer.pt", "scheduler.pt", *ranks)
    assert refusals(tmp_path) == ["checkpoint-20: it has no model.safetensors.index.json"]
    (folder / "model.safetensors.index.json").write_text("{}")
    (folder / ranks[1]).unlink()
    assert refusals(tmp_path) == ["checkpoint-20: it has no rng_state_1.pth"]
    (folder / shards[1]).unlink()
    assert refusals(tmp_path) == [f"checkpoint-20: it has no {shards[1]}"]


def test_another_number_of_ranks_has_another_number_of_random_states(tmp_path: Path) -> None:
    trainer(tmp_path, 10, *TRAINER[:3], "rng_state_0.pth", "rng_state_1.pth")
    trainer(tmp_path, 20, *TRAINER[:3], "rng_state.pth")
    assert chosen(tmp_path) == "checkpoint-20"


def test_the_only_numbered_random_states_do_not_tell_how_many_ranks_there_were(tmp_path: Path) -> None:
    trainer(tmp_path / "w_0", 10, *TRAINER[:3], "rng_state_0.pth")
    put(tmp_path / "w_1" / "checkpoint-10", "rng_state_1.pth")
    assert {one.world_size for one in survey(tmp_path).scan.entries} == {None}
    assert "checkpoint-10: it has no rng_state_1.pth" in refusals(tmp_path)


def test_accelerates_directory(tmp_path: Path) -> None:
    for number in (1, 2):
        put(tmp_path / f"checkpoint_{number}", *ACCELERATE, "model_1.safetensors", "optimizer_1.bin")
    assert chosen(tmp_path) == "checkpoint_2"
    (tmp_path / "checkpoint_2" / "random_states_0.pkl").write_bytes(TORCH[:100])
    assert chosen(tmp_path) == "checkpoint_1"
    (tmp_path / "checkpoint_1" / "model.safetensors").unlink()
    assert "has nothing like model.safetensors" in refusals(tmp_path)[1]


def test_deepspeeds_directory_needs_the_shard_of_every_rank(tmp_path: Path) -> None:
    for step in (10, 20):
        put(tmp_path / f"global_step{step}", *DEEPSPEED)
    assert chosen(tmp_path) == "global_step20"
    (tmp_path / "global_step20" / DEEPSPEED[2]).unlink()
    assert refusals(tmp_path) == [f"global_step20: it has no {DEEPSPEED[2]}, which global_step10 has"]


def test_directories_within_belong_to_it(tmp_path: Path) -> None:
    for step in (10, 20):
        folder = trainer(tmp_path, step, "rng_state_0.pth", "rng_state_1.pth")
        put(folder / f"global_step{step}", *DEEPSPEED)
    assert len(survey(tmp_path).scan.entries) == 2
    assert chosen(tmp_path) == "checkpoint-20"
    torn = tmp_path / "checkpoint-20" / "global_step20" / DEEPSPEED[1]
    torn.write_bytes(TORCH[:200])
    assert chosen(tmp_path) == "checkpoint-10"
    assert refusals(tmp_path)[0].startswith(f"checkpoint-20: its global_step20: its {DEEPSPEED[1]}: ")
    shutil.rmtree(torn.parent)
    assert chosen(tmp_path) == "checkpoint-10"


@pytest.mark.parametrize("part", ["pytorch_model", "global_step30"])
def test_accelerates_directory_with_deepspeeds_within(tmp_path: Path, part: str) -> None:
    for number in (1, 2):
        put(put(tmp_path / f"checkpoint_{number}", "scheduler.bin", "random_states_0.pkl") / part, *DEEPSPEED)
    assert chosen(tmp_path) == "checkpoint_2"
    (tmp_path / "checkpoint_2" / part / DEEPSPEED[0]).unlink()
    why = f"checkpoint_2: its {part}: it has no {DEEPSPEED[0]}, nor another file of the model"
    assert refusals(tmp_path) == [why]


def test_a_folder_of_deepspeeds_directories_is_not_one_of_them(tmp_path: Path) -> None:
    put(tmp_path / "run", "scheduler.pt")
    for step in (10, 20):
        put(tmp_path / f"run/global_step{step}", *DEEPSPEED)
    assert chosen(tmp_path) == "run/global_step20"


def test_fsdps_directories_belong_to_accelerates_and_are_none_alone(tmp_path: Path) -> None:
    dcp = ZIP.parent / "step_1200"
    folder = put(tmp_path / "checkpoint_1", "scheduler.bin", "random_states_0.pkl")
    for part in ("pytorch_model_fsdp_0", "optimizer_0"):
        shutil.copytree(dcp, folder / part)
    assert chosen(tmp_path) == "checkpoint_1"
    (folder / "optimizer_0" / ".metadata").unlink()
    assert refusals(tmp_path)[0].startswith("checkpoint_1: its optimizer_0: ")
    for name in ("scheduler.bin", "random_states_0.pkl"):
        (folder / name).unlink()
    found = survey(tmp_path)
    assert isinstance(found.choice, NothingFound)
    why = {Path(one.path).name: one.why for one in found.scan.unfinished}
    assert why["pytorch_model_fsdp_0"] == "it is a part of a checkpoint whose other files were not written"


def test_fsdps_two_files(tmp_path: Path) -> None:
    for time in ("1700", "1800"):
        put(tmp_path / time, "model_state_dict.pt", "optim_state_dict.pt")
    whole = tmp_path / "1800" / "optim_state_dict.pt"
    whole.unlink()
    assert chosen(tmp_path) == "1700"
    put(tmp_path / "1800", "optim_state_dict.pt")
    (tmp_path / "1800" / "model_state_dict.pt").write_bytes(TORCH[:50])
    assert chosen(tmp_path) == "1700"
    shutil.rmtree(tmp_path / "1700")
    put(tmp_path / "1800", "model_state_dict.pt")
    whole.unlink()
    assert chosen(tmp_path) == "1800/model_state_dict.pt", "a script that saves nothing else"


@pytest.mark.parametrize("name", [
    "optimizer.pt", "optimizer_100.pt", "rng_state_3.pth", "scheduler-5.pt", "optim_state_dict.pt",
    "scaler.pth",
])  # fmt: skip
def test_a_side_file_is_never_chosen_whatever_lies_beside_it(tmp_path: Path, name: str) -> None:
    put(tmp_path, name)
    assert not isinstance(survey(tmp_path).choice, Chosen)
    put(tmp_path, "epoch_3.pt", "epoch_4.pt")
    assert chosen(tmp_path) == "epoch_4.pt"


def test_names_that_count_steps_are_not_taken_for_the_shards_of_one_save(tmp_path: Path) -> None:
    put(tmp_path, *(f"{what}_{step}.pt" for what in ("model_step", "optimizer_step") for step in (100, 200)))
    assert chosen(tmp_path) == "model_step_200.pt"


LAYOUTS: dict[str, Callable[[Path, int], Path]] = {
    "trainer": trainer,
    "accelerate": lambda root, step: put(root / f"checkpoint_{step}", *ACCELERATE),
    "deepspeed": lambda root, step: put(root / f"global_step{step}", *DEEPSPEED),
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.data())
def test_whatever_is_cut_or_lost_the_newest_directory_that_is_all_there_is_chosen(
    layout: str, data: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        root = Path(name)
        folders = [LAYOUTS[layout](root, step) for step in (10, 20, 30)]
        spoiled = data.draw(st.sets(st.sampled_from(folders[1:])))
        for folder in sorted(spoiled):
            file = data.draw(st.sampled_from(sorted(folder.iterdir())))
            size = data.draw(st.none() | st.integers(0, file.stat().st_size - 1))
            if size is None:
                file.unlink()
            else:
                file.write_bytes(file.read_bytes()[:size])
        assert chosen(root) == max(set(folders) - spoiled).name
