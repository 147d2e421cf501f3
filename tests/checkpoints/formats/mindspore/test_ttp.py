"""MindIO TTP directories, the power-off checkpoint of seed 0."""

from pathlib import Path

import pytest

from faultrun.checkpoints.find import Findings
from faultrun.core.recovery.choose import Chosen, NoneUsable, NothingFound
from faultrun.core.recovery.need import Need, World
from faultrun.model.checkpoint import Kind
from support.checkpoints.catalogs import survey_of
from support.checkpoints.ckpt_bytes import WEIGHTS, records, save

APPENDED = {"epoch_num": 2, "step_num": 3090, "cur_rank": 0, "batch_num": 1875, "global_step": 3090}
"""Steps per epoch 1875, epoch 2, step 1215: global step 3090."""


def ttp(**more: float) -> bytes:
    return b"".join(records({**WEIGHTS, **APPENDED, **more}))


def look(root: Path, groups: tuple[frozenset[int], ...] | None = None) -> Findings:
    return survey_of(root, Need(world=World(size=4, groups=groups)))


@pytest.mark.parametrize("prefix", ["tft", "ttp"])
def test_the_worked_example_is_read_and_serves_every_rank(tmp_path: Path, prefix: str) -> None:
    save(tmp_path / f"{prefix}_saved_checkpoints-step_3090/rank_2/ttp_rank_2-2_1215.ckpt", ttp())
    found = look(tmp_path)
    (entry,) = found.scan.entries
    assert (entry.format, entry.kind, entry.rank) == ("mindio-ttp", Kind.GASP, 2)
    assert (entry.epoch, entry.step_in_epoch, entry.global_step) == (2, 1215, 3090)
    assert entry.consistent
    assert isinstance(found.choice, Chosen)
    assert {file.from_rank for file in found.choice.point.files} == {2}


def test_a_directory_that_was_never_renamed_is_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "ttp_saved_checkpoints-step_3090_tmp/rank_0/ttp_rank_0-2_1215.ckpt", ttp())
    found = look(tmp_path)
    assert isinstance(found.choice, NothingFound)
    (refusal,) = found.refused
    assert refusal.why == "ttp_saved_checkpoints-step_3090_tmp was never renamed: not every rank had saved"


@pytest.mark.long
def test_every_cut_is_refused_even_of_a_lone_file(tmp_path: Path) -> None:
    path = tmp_path / "ttp_saved_checkpoints-step_3090/rank_0/ttp_rank_0-2_1215.ckpt"
    for size in range(len(ttp())):
        save(path, ttp()[:size])
        assert isinstance(look(tmp_path).choice, NoneUsable), size


def test_the_loss_scale_behind_the_counts_is_optional(tmp_path: Path) -> None:
    save(tmp_path / "ttp_saved_checkpoints-step_3090/rank_0/ttp_rank_0-2_1215.ckpt", ttp(loss_scale=1024.0))
    assert isinstance(look(tmp_path).choice, Chosen)


def test_the_largest_step_whose_directory_covers_every_group_is_taken(tmp_path: Path) -> None:
    groups = (frozenset({0, 2}), frozenset({1, 3}))
    for rank in (0, 1):
        save(
            tmp_path / f"ttp_saved_checkpoints-step_3000/rank_{rank}/ttp_rank_{rank}-2_1125.ckpt",
            ttp(step_num=3000, global_step=3000),
        )
    save(tmp_path / "ttp_saved_checkpoints-step_3090/rank_0/ttp_rank_0-2_1215.ckpt", ttp())
    found = look(tmp_path, groups=groups)
    assert isinstance(found.choice, Chosen)
    assert found.choice.point.restore_ranks_map == '{"0,2": 0, "1,3": 1}'
    assert "step_3000" in found.choice.point.path
