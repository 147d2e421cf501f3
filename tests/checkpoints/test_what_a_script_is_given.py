"""Which of a run's saves a script is given, by what was seen written, step by step."""

import os
import pickle
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.find import scan_and_choose
from faultrun.checkpoints.saves.save_learner import SaveLearner
from faultrun.core.recovery.choose import Chosen
from faultrun.core.recovery.need import Need, World
from faultrun.model.observed.saves import SavesSeen

Told = dict[str, int]
Saves = Iterable[tuple[str, Told, int]]
"""Paths, what the files tell inside, and their size."""


def given(root: Path, saves: Callable[[int], Saves], *, until: int, logged: int = 1) -> tuple[str, str]:
    """Path and position of what a script gets that saves so to step ``until``, and tells each ``logged``."""
    learner = SaveLearner(SavesSeen(), (str(root),))
    for step in range(1, until + 1):
        for name, told, size in saves(step):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(path, "w") as file:
                file.writestr("archive/data.pkl", pickle.dumps(told | {"w": bytes(size)}, protocol=2))
                file.writestr("archive/byteorder", "little")
                file.writestr("archive/version", "3\n")
            os.utime(path, (1e9 + step, 1e9 + step))
            if (save := learner.wrote(str(path), root=str(root))) is not None:
                learner.saved_at(save, str(path), step // logged * logged or None)
    catalog = Catalog([str(root)], settle_s=0.0)
    catalog.seen, catalog.order, catalog.world_size = learner.seen, learner.seen.order, 1
    catalog.reached(until)
    choice = scan_and_choose(catalog, Need(world=World(size=1))).choice
    assert isinstance(choice, Chosen), choice
    return str(Path(choice.point.path).relative_to(root)), choice.point.position


def each(every: int, name: str, size: int = 900, **told: str) -> Callable[[int], Saves]:
    """Save ``name`` in each ``every``-th step; ``{n}`` is the step, ``{k}`` counts saves."""

    def saves(step: int) -> Saves:
        if step % every == 0:
            known = {"n": step, "k": step // every, "turn": step // every % 2}
            yield name.format(**known), {key: known[value] for key, value in told.items()}, size

    return saves


def in_parts(every: int, length: int, name: str, **told: str) -> Callable[[int], Saves]:
    """Save ``name`` where ``{p}`` counts parts of so many steps, ``{w}`` names one, ``{i}`` counts there."""

    def saves(step: int) -> Saves:
        part, at = divmod(step - 1, length)
        if step % every == 0:
            known = {"p": part, "i": at + 1, "w": ("warmup", "full", "cooldown")[part % 3]}
            yield name.format(**known), {key: int(known[value]) for key, value in told.items()}, 900

    return saves


def both(*of: Callable[[int], Saves]) -> Callable[[int], Saves]:
    return lambda step: [one for saves in of for one in saves(step)]


@pytest.mark.parametrize(
    ("saves", "until", "path"),
    [
        (both(each(10, "checkpoint.pt"), each(12, "preds_{n}.pt")), 26, "checkpoint.pt"),
        (both(each(10, "checkpoint.pt"), each(12, "frames_{n}.pt", 9)), 26, "checkpoint.pt"),
        (both(each(10, "model_{n}.pt"), each(5, "results.pt")), 27, "model_20.pt"),
        (both(each(10, "model_{n}.pt"), each(25, "table_{n}.pt")), 27, "model_20.pt"),
        (both(each(10, "c_{n}.pt", step="n"), each(11, "serving.pt")), 27, "c_20.pt"),
        (both(each(10, "model.pt", step="n"), each(5, "ema.pt", step="n")), 27, "model.pt"),
        (both(each(10, "model_{n}.pt"), each(5, "last.pt")), 27, "last.pt"),
        (both(each(4, "ckpt{turn}/model.pt"), each(4, "ckpt{turn}/optim.pt")), 26, "ckpt0/model.pt"),
        (in_parts(5, 20, "fold{p}_step_{i}.pt"), 27, "fold1_step_5.pt"),
        (in_parts(5, 20, "fold{p}_step_{i}.pt"), 57, "fold2_step_15.pt"),
        (in_parts(5, 15, "task{p}/epoch_{i}.pt"), 22, "task1/epoch_5.pt"),
        (in_parts(5, 20, "phase{p}-{i}.pt"), 27, "phase1-5.pt"),
        (in_parts(5, 20, "{w}_epoch{i}.pt", epoch="i"), 27, "full_epoch5.pt"),
        (in_parts(5, 20, "{w}_epoch{i}.pt", epoch="i"), 57, "cooldown_epoch15.pt"),
        (both(each(10, "step_{n}.pt"), each(10, "shown_{k}.pt", 9)), 57, "step_50.pt"),
        (both(each(10, "c_{n}.pt", step="n"), each(5, "drawn_{n}.pt", 9)), 37, "c_30.pt"),
        (both(each(10, "c_{n}.pt", step="n"), each(5, "maps_{n}.pt", 9999)), 37, "c_30.pt"),
        (both(each(10, "c_{n}.pt", step="n"), each(30, "c_{n}.pt"), each(20, "x_c_{n}.pt")), 37, "c_30.pt"),
    ],
)
def test_a_script_is_given_the_newest_save_of_what_it_resumes_from(
    tmp_path: Path, saves: Callable[[int], Saves], until: int, path: str
) -> None:
    assert given(tmp_path, saves, until=until)[0] == path


def test_folders_above_the_checkpoints_tell_nothing_of_them(tmp_path: Path) -> None:
    written = {10: ("try1/step_10/model.pt", "try1/step_10/optimizer.pt"), 20: ("try1/step_20/model.pt",)}
    written[30] = ("try2/step_20/model.pt",)  # cut, as is the one before
    for root in (tmp_path / name for name in ("runs", "export/eval/d", "ema/results")):
        found = given(root, lambda step: [(name, {}, 900) for name in written.get(step, ())], until=30)
        assert found[0] == "try1/step_10"


@pytest.mark.parametrize(
    ("saves", "logged", "position"),
    [
        (each(3, "model_{n}.pt"), 10, "step 36"),
        (each(3, "model_{k}.pt"), 1, "about step 36"),
        (each(3, "checkpoint_{k}/model.pt"), 1, "about step 36"),
        (in_parts(4, 15, "e{p}_s{i}.pt", epoch="p", step="i"), 1, "about step 36 (epoch 2)"),
        (in_parts(4, 100, "e{p}_s{i}.pt", epoch="p", step="i"), 10, "step 36 (epoch 0)"),
    ],
)
def test_a_number_that_counts_something_else_is_not_told_as_the_step(
    tmp_path: Path, saves: Callable[[int], Saves], logged: int, position: str
) -> None:
    assert given(tmp_path, saves, until=38, logged=logged)[1] == position
