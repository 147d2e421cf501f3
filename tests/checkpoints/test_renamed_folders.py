"""Folders that are published by a rename, perhaps before they were looked into under their first name."""

from random import Random

import pytest

from faultrun.checkpoints.saves.growing_save import GrowingSave
from faultrun.checkpoints.saves.save_learner import SaveLearner
from faultrun.model.observed.saves import SavesSeen


@pytest.mark.parametrize("names", ["m.pt", "m.pt o.pt", "rank0.pt rank1.pt", "m.pt o_rank0.pt o_rank1.pt"])
@pytest.mark.parametrize("last", ["cur", "step_{}"])
@pytest.mark.parametrize("seed", range(25))
def test_each_is_a_save_whenever_its_step_is_asked_for(names: str, last: str, seed: int) -> None:
    chance, learner, there = Random(seed), SaveLearner(SavesSeen(), ("/ckpt",)), dict[str, str]()
    untold: list[tuple[GrowingSave, str]] = []

    def seen(path: str, was: str = "") -> None:
        if not (was and learner.moved(was, path)) and (save := learner.wrote(path, root="/ckpt")):
            untold.append((save, path))

    def asked(step: int) -> None:
        while untold:
            save, path = untold.pop(0)
            learner.saved_at(save, path, step, there.get(save.path(path), ""))

    for step in (10, 20, 30, 40, 50):
        missed = chance.random() < 0.3
        for name in names.split():
            there[f"/ckpt/new/{name}"] = f"{name} {step}"
            if not missed:
                seen(f"/ckpt/new/{name}")
        for was, to in (("cur", "old"), ("new", last.format(step))):
            for name in (one for one in names.split() if f"/ckpt/{was}/{one}" in there):
                there[f"/ckpt/{to}/{name}"] = there.pop(f"/ckpt/{was}/{name}")
                seen(f"/ckpt/{to}/{name}", f"/ckpt/{was}/{name}")
                if chance.random() < 0.2:
                    asked(step)
        asked(step)
        newest = learner.seen.saves[-1]
        lie = {f"/ckpt/{last.format(step)}/{name}" for name in names.split()}
        assert step == 10 or ({*newest.paths, *newest.ranks}, newest.step) == (lie, step)
