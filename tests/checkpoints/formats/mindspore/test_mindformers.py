"""MindFormers' folders of format 2.0, by the layout that MindFormers 2.1.0 documents and writes."""

import json
from pathlib import Path

import pytest

from faultrun.checkpoints.registry import builtin_formats
from faultrun.core.recovery.choose import Chosen, NothingFound
from faultrun.core.recovery.need import Need, World
from support.checkpoints.catalogs import catalog_of, survey_of
from support.places import DATA

MODEL = (DATA / "safetensors" / "model.safetensors").read_bytes()
ALL = builtin_formats()


def save(root: Path, step: int, *, ranks: int = 2) -> Path:
    folder = root / f"iteration_{step:08d}"
    folder.mkdir(parents=True)
    names = [
        f"qwen3-{kind}-{rank:07d}-{ranks:07d}.safetensors"
        for kind in ("model", "opt")
        for rank in range(ranks)
    ]
    for name in names:
        (folder / name).write_bytes(MODEL)
    common = {"epoch_num": 1, "step_num": step, "global_step": step, "global_batch_size": 8}
    (folder / "common.json").write_text(json.dumps(common))
    if ranks > 1:
        storage = {f"p{at}": [{"file_name": name, "storage_rank": 0}] for at, name in enumerate(names)}
        (folder / "metadata.json").write_text(
            json.dumps({"state_dict_metadata": {}, "storage_data": storage})
        )
    return folder


def chosen(root: Path, world_size: int = 2) -> str:
    choice = survey_of(root, Need(world=World(size=world_size)), ALL).choice
    assert isinstance(choice, Chosen), choice
    return Path(choice.point.path).name


def test_a_folder_is_one_checkpoint_for_any_number_of_ranks(tmp_path: Path) -> None:
    for step in (10, 20):
        save(tmp_path, step)
    entries = catalog_of(tmp_path, ALL).scan().entries
    found = [(one.format, one.global_step, one.epoch, one.world_size, one.rank) for one in entries]
    assert sorted(found) == [("mindformers", 10, 1, None, None), ("mindformers", 20, 1, None, None)]
    assert chosen(tmp_path, 2) == chosen(tmp_path, 7) == "iteration_00000020"


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("how", ["torn", "gone"])
def test_no_file_may_be_torn_or_gone(tmp_path: Path, how: str, ranks: int) -> None:
    save(tmp_path, 10, ranks=ranks)
    newer = save(tmp_path, 20, ranks=ranks)
    for file in sorted(newer.iterdir()):
        before = file.read_bytes()
        file.unlink() if how == "gone" else file.write_bytes(before[:-20])
        assert chosen(tmp_path) == "iteration_00000010", file
        found = survey_of(tmp_path, Need(world=World(size=2)), ALL)
        refused = [*getattr(found.choice, "refused", ()), *found.scan.unfinished]
        (why,) = {one.why for one in refused if one.path == str(newer)}
        assert file.name in why, why
        file.write_bytes(before)


def test_a_save_that_was_cut_short_is_no_checkpoint(tmp_path: Path) -> None:
    (save(tmp_path, 10) / "metadata.json").unlink()
    found = survey_of(tmp_path, Need(world=World(size=2)), ALL)
    assert isinstance(found.choice, NothingFound)
    assert [one.why for one in found.scan.unfinished] == [
        "it has no metadata.json, which is written last: the save was not finished"
    ]


def test_metadata_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    (folder / "metadata.json").write_text('{"storage_data": {"p": [{"file_name": "../../etc/passwd"}]}}')
    (refused,) = survey_of(tmp_path, Need(world=World(size=2)), ALL).choice.refused
    assert refused.why == "its metadata.json does not say which file holds which parameter"
