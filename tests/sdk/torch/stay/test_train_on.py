"""Real ranks on gloo, real kills: the others train on with the same global batch while a place is empty."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from sdk.support.torch_imports import IMPORTS
from sdk.support.train_on_stage import TrainOnStage, training_on
from support.places import TESTS

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = TESTS / "sdk" / "scripts" / "train_shares.py"
_undisturbed: dict[tuple[tuple[str, ...], int], Any] = {}


def stage_of(folder: Path, *words: str, world: int = 3):  # type: ignore[no-untyped-def]
    return training_on(folder, SCRIPT, *words, world=world, imports=IMPORTS)


def weights(stage: TrainOnStage) -> Any:
    """The parameters at the end, which all that live have alike."""
    assert set(stage.wait_ended()) == {0}, stage.logs()
    ends = {(stage.folder / f"final_{rank.number}").read_text() for rank in stage.living}
    assert len(ends) == 1, "not all have the same parameters"
    return torch.load(stage.folder / f"weights_{stage.living[0].number}.pt")


def undisturbed(folder: Path, words: tuple[str, ...], world: int = 3) -> Any:
    """The same of a run in which nobody dies."""
    if (words, world) not in _undisturbed:
        with stage_of(folder / "undisturbed", *words, world=world) as stage:
            stage.begin()
            found = weights(stage)
            _undisturbed[words, world] = found, steps_of(stage)
    return _undisturbed[words, world]


def steps_of(stage: TrainOnStage) -> dict[int, list[int]]:
    """The samples of each step as it stands, whoever has done them, sorted."""
    told: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
    for rank in range(stage.world):
        for line in (stage.folder / f"samples_{rank}").read_text().splitlines():
            step, incarnation, *samples = map(int, line.split())
            told[step].setdefault(incarnation, []).extend(samples)
    return {step: sorted(lives[max(lives)]) for step, lives in sorted(told.items())}


def assert_is_that_of(stage: TrainOnStage, expected: Any) -> None:
    """The same samples in every step, and the same parameters but for the order of sums."""
    parameters, steps = expected
    found = weights(stage)
    assert steps_of(stage) == steps
    torch.testing.assert_close(found, parameters, rtol=1e-5, atol=1e-6)


DDP = ("3", "50", "4", "ddp")
HAND = ("3", "50", "4", "hand")


@pytest.mark.parametrize("words", [DDP, HAND], ids=" ".join)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_is_lost_and_the_others_do_its_share_to_the_end(
    words: tuple[str, ...], rank: int, tmp_path: Path
) -> None:
    with stage_of(tmp_path / "hit", *words, "waits-6") as stage:
        stage.begin()
        stage.wait_able()
        stage.kill(rank)
        stage.goes_on_behind(6)
        assert_is_that_of(stage, undisturbed(tmp_path, words))
        assert len(stage.incidents) == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_place_is_filled_while_the_others_train(rank: int, tmp_path: Path) -> None:
    with stage_of(tmp_path / "hit", *DDP, "waits-3", "waits-6") as stage:
        stage.begin()
        stage.wait_able()
        stage.kill(rank)
        stage.goes_on_behind(3)
        stage.wait_trained(1)
        stage.heal(rank)
        stage.goes_on_behind(6)
        assert_is_that_of(stage, undisturbed(tmp_path, DDP))
        assert len(stage.incidents) == 2
        assert not stage.missing
