"""Megatron's folders: torch_dist as megatron_core 0.16.1 wrote it, torch and verl's by documented layout.

``tests/data/megatron``: two CPU ranks over gloo, with ``torch.cuda.synchronize`` made to do nothing.
"""

import shutil
from pathlib import Path

import pytest

from faultrun.core.recovery.choose import NothingFound
from faultrun.core.recovery.need import Need, World
from faultrun.model.checkpoint import Depth
from support.checkpoints.catalogs import catalog_of, judge, survey_of
from support.checkpoints.for_two import ALL, TWO, chosen, refusals
from support.places import DATA

LAYOUTS = {"torch_dist": "megatron/torch_dist", "torch": "megatron/torch", "verl": "verl"}


@pytest.fixture(params=LAYOUTS)
def saves(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two saves of one layout."""
    return Path(shutil.copytree(DATA / LAYOUTS[request.param], tmp_path / "run"))


@pytest.mark.parametrize(
    ("layout", "found"),
    [
        ("torch_dist", [("megatron", 10, None), ("megatron", 20, None)]),
        ("torch", [("megatron", 10, 2), ("megatron", 20, 2)]),
        ("verl", [("verl", 1, None), ("verl", 2, None)]),
    ],
)
def test_a_folder_is_one_checkpoint_and_tells_its_iteration(layout: str, found: object) -> None:
    entries = catalog_of(DATA / LAYOUTS[layout], ALL).scan().entries
    assert sorted((one.format, one.global_step, one.world_size) for one in entries) == found
    newest = max(entries, key=lambda one: one.global_step or 0)
    verdict = judge(DATA / LAYOUTS[layout], Path(newest.path).name, formats=ALL)
    assert (verdict.whole, verdict.depth) == (True, Depth.CHECKSUM), verdict.why


@pytest.mark.long
@pytest.mark.parametrize("how", ["torn", "gone"])
def test_no_file_may_be_torn_or_gone(saves: Path, how: str) -> None:
    older, newer = sorted(one for one in saves.iterdir() if one.is_dir())
    assert chosen(saves) == newer.name
    for file in sorted(one for one in newer.rglob("*") if one.is_file()):
        before = file.read_bytes()
        file.unlink() if how == "gone" else file.write_bytes(before[: len(before) // 2])
        assert chosen(saves) == older.name, file
        found = survey_of(saves, TWO, ALL)
        refused = [*getattr(found.choice, "refused", ()), *found.scan.unfinished]
        (why,) = {one.why for one in refused if one.path == str(newer)}
        assert file.name in why or str(file.relative_to(newer)) in why, why
        file.write_bytes(before)


def test_a_place_of_the_grid_that_is_gone_is_named(tmp_path: Path) -> None:
    root = Path(shutil.copytree(DATA / "megatron" / "torch", tmp_path / "run"))
    newer = root / "iter_0000020"
    (newer / "mp_rank_00_000").rename(newer / "mp_rank_01_001")
    assert refusals(root)[0] == "iter_0000020: it has no mp_rank_00_000"
    shutil.rmtree(newer / "mp_rank_01_001")
    (newer / "mp_rank_00_001").rename(newer / "mp_rank_00_000")
    assert refusals(root)[0] == "iter_0000020: it has 1 mp_rank folders, and its arguments tell of 2"


def test_torch_dist_loads_into_any_world_and_torch_does_not() -> None:
    assert chosen(DATA / "megatron" / "torch_dist", Need(world=World(size=3))) == "iter_0000020"
    why = "iter_0000020: written by 2 ranks, this run has 3"
    assert refusals(DATA / "megatron" / "torch", Need(world=World(size=3)))[0] == why


@pytest.mark.parametrize("layout", ["torch_dist", "torch"])
def test_a_converted_model_is_no_state_of_training(tmp_path: Path, layout: str) -> None:
    shutil.copytree(DATA / "megatron" / layout / "iter_0000010", tmp_path / "release")
    found = survey_of(tmp_path, TWO, ALL)
    assert isinstance(found.choice, NothingFound)
    assert [one.why for one in found.scan.unfinished] == [
        "it is a converted model to begin from, no state of training"
    ]


def test_a_save_of_verl_that_was_cut_short_is_no_checkpoint(tmp_path: Path) -> None:
    root = Path(shutil.copytree(DATA / "verl", tmp_path / "run"))
    (root / "global_step_2" / "data.pt").unlink()
    assert chosen(root) == "global_step_1"
    (unfinished,) = survey_of(root, TWO, ALL).scan.unfinished
    assert unfinished.why == "it has no data.pt, which is written last: the save was not finished"


def test_verl_over_megatron_has_a_folder_of_megatrons_in_each_role(tmp_path: Path) -> None:
    for step in (1, 2):
        folder = tmp_path / f"global_step_{step}"
        shutil.copytree(DATA / "megatron" / "torch_dist" / "iter_0000010", folder / "actor" / "dist_ckpt")
        shutil.copy(DATA / "verl" / "global_step_1" / "data.pt", folder)
    assert chosen(tmp_path) == "global_step_2"
    (tmp_path / "global_step_2" / "actor" / "dist_ckpt" / "common.pt").unlink()
    assert refusals(tmp_path) == ["global_step_2: its actor/dist_ckpt: it has no common.pt"]
