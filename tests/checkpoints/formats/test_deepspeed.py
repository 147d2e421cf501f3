"""DeepSpeed's folders, as DeepSpeed 0.19.8 wrote them on two CPU ranks: every file of the grid must be there.

``tests/data/deepspeed``: ZeRO 0, 1 (bf16) and 3, a pipeline of two stages, what ``ds_to_universal`` makes.
"""

import shutil
from pathlib import Path

import pytest

from faultrun.core.recovery.need import Need, World
from faultrun.model.checkpoint import Depth
from support.checkpoints.catalogs import catalog_of, judge, only
from support.checkpoints.for_two import ALL, chosen, refusals
from support.places import TESTS

DATA = TESTS / "data" / "deepspeed"


@pytest.fixture
def zero1(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "zero1", tmp_path / "run"))


@pytest.mark.parametrize(
    ("kind", "step", "world_size"),
    [("zero0", 2, None), ("zero3", 2, 2), ("pipeline", 2, 2), ("universal", 4, None)],
)
def test_the_folder_tells_its_step_and_for_how_many_ranks_it_is(
    kind: str, step: int, world_size: int | None
) -> None:
    entry = only(DATA / kind, ALL)
    assert (entry.global_step, entry.world_size, entry.rank) == (step, world_size, None)
    verdict = judge(DATA / kind, Path(entry.path).name, formats=ALL)
    assert (verdict.whole, verdict.depth) == (True, Depth.CHECKSUM), verdict.why


def test_contents_tell_the_step_whatever_the_tag_says(zero1: Path) -> None:
    (zero1 / "global_step4").rename(zero1 / "before_lunch")
    steps = {Path(one.path).name: one.global_step for one in catalog_of(zero1, ALL).scan().entries}
    assert steps == {"global_step2": 2, "before_lunch": 4}
    assert chosen(zero1) == "before_lunch"


@pytest.mark.parametrize("kind", ["zero1", "zero3", "pipeline"])
@pytest.mark.parametrize("how", ["torn", "missing", "empty"])
def test_every_file_that_is_torn_or_gone_refuses_the_folder_by_its_name(
    tmp_path: Path, kind: str, how: str
) -> None:
    whole = next(iter(sorted((DATA / kind).iterdir())))
    for number, name in enumerate(sorted(one.name for one in whole.iterdir())):
        root = tmp_path / str(number)
        shutil.copytree(whole, root / "global_step2")
        newer = Path(shutil.copytree(whole, root / "global_step4"))
        spoil(newer / name, how)
        verdict = judge(root, "global_step4", formats=ALL)
        assert not verdict.whole
        assert name in verdict.why or (how, name[:7]) == ("missing", "mp_rank")
        assert chosen(root) == "global_step2"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("zero1", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        ("zero3", "zero_pp_rank_1_mp_rank_00_model_states.pt"),
        ("zero3", "zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        ("pipeline", "mp_rank_01_model_states.pt"),
        ("pipeline", "bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt"),
    ],
)
def test_the_last_rank_is_missed_without_another_save_to_compare_with(
    tmp_path: Path, kind: str, name: str
) -> None:
    shutil.copytree(DATA / kind / "global_step2", tmp_path / "global_step2")
    (tmp_path / "global_step2" / name).unlink()
    assert refusals(tmp_path) == [f"global_step2: it has no {name}, and was saved by 2 ranks"]


def test_the_shards_of_another_world_are_refused(zero1: Path) -> None:
    need = Need(world=World(size=4))
    assert refusals(zero1, need)[0] == "global_step4: written by 2 ranks, this run has 4"
    shutil.copytree(DATA / "zero0", zero1 / "plain")
    assert chosen(zero1, need) == "global_step2"


def test_files_of_two_saves_in_one_folder_are_refused(tmp_path: Path) -> None:
    root = Path(shutil.copytree(DATA / "zero3" / "global_step2", tmp_path / "last"))
    other = DATA / "zero1" / "global_step4" / "mp_rank_00_model_states.pt"
    shutil.copy(other, root / "zero_pp_rank_1_mp_rank_00_model_states.pt")
    (why,) = refusals(tmp_path)
    assert why == (
        "last: its zero_pp_rank_1_mp_rank_00_model_states.pt is of step 4, "
        "its zero_pp_rank_0_mp_rank_00_model_states.pt of step 2"
    )


def test_a_layer_of_the_pipeline_is_missed_beside_another_save(tmp_path: Path) -> None:
    for step in (2, 4):
        shutil.copytree(DATA / "pipeline" / "global_step2", tmp_path / f"global_step{step}")
    (tmp_path / "global_step4" / "layer_03-model_states.pt").unlink()
    why = judge(tmp_path, "global_step4", formats=ALL).why
    assert why == "it has no layer_03-model_states.pt, which global_step2 has"


@pytest.mark.parametrize("name", ["0.bias/exp_avg.pt", "2.weight/fp32.pt", "optimizer_state.pt"])
def test_a_universal_checkpoint_needs_the_files_of_every_parameter(tmp_path: Path, name: str) -> None:
    root = Path(shutil.copytree(DATA / "universal", tmp_path / "run"))
    assert chosen(root, Need(world=World(size=7))) == "global_step4_universal"
    file = root / "global_step4_universal" / "zero" / name
    spoil(file, "torn")
    assert refusals(root)[0].startswith(f"global_step4_universal: its zero/{name}: ")
    file.unlink()
    assert f"zero/{name}" in refusals(root)[0]


def test_nested_below_another_codes_folder_it_is_no_checkpoint_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-4"
    shutil.copytree(DATA / "zero1" / "global_step4", folder / "global_step4")
    (folder / "trainer_state.json").write_text('{"global_step": 4, "log_history": []}')
    shutil.copy(DATA / "zero0" / "global_step2" / "mp_rank_00_model_states.pt", folder / "scheduler.pt")
    shutil.copy(folder / "scheduler.pt", folder / "rng_state_0.pth")
    shutil.copy(folder / "scheduler.pt", folder / "rng_state_1.pth")
    assert chosen(tmp_path) == "checkpoint-4"
    lost = folder / "global_step4" / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    lost.unlink()
    assert refusals(tmp_path) == [
        f"checkpoint-4: its global_step4: it has no {lost.name}, and was saved by 2 ranks"
    ]


def spoil(file: Path, how: str) -> None:
    match how:
        case "missing":
            file.unlink()
        case "empty":
            file.write_bytes(b"")
        case _:
            file.write_bytes(file.read_bytes()[:-30])
