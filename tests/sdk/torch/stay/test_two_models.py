"""Two models in one step, each in a DistributedDataParallel of its own: real ranks, real kills."""

from pathlib import Path

import pytest

from sdk.support.rejoin_stage import RejoinStage, rejoining
from sdk.support.torch_imports import IMPORTS
from support.places import TESTS

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = TESTS / "sdk" / "scripts" / "train_stay.py"
WORDS = ("14", "ddp", "bn", "critic", "every-1")


def models_of(folder: Path, *words: str):  # type: ignore[no-untyped-def]
    return rejoining(folder, SCRIPT, *words, world=3, imports=IMPORTS)


def ends(stage: RejoinStage) -> list[str]:
    assert stage.wait_ended() == [0] * stage.world, stage.logs()
    return [(stage.folder / f"final_{rank}").read_text() for rank in range(stage.world)]


def test_a_rank_may_die_before_the_second_model_has_run_and_in_any_of_its_phases(tmp_path: Path) -> None:
    with models_of(tmp_path / "undisturbed", *WORDS) as stage:
        stage.begin()
        expected = ends(stage)
    kills = (
        "kill-1-3-reduced",
        "kill-2-6-judged",
        "kill-0-8-between",
        "kill-1-10-reduced",
        "kill-2-12-updated",
    )
    with models_of(tmp_path / "hit", *WORDS, *kills) as stage:
        stage.begin()
        assert ends(stage) == expected
        assert len(stage.incidents) == len(kills)


def test_where_the_second_model_has_run_once_all_save_and_start_again(tmp_path: Path) -> None:
    with models_of(tmp_path / "hit", *WORDS, "kill-1-4-judged") as stage:

        def gives_up(rank: object, content: dict[str, object]) -> None:
            stage.replaces &= content["kind"] != "cannot_rejoin"

        stage.on_message = gives_up
        stage.begin()
        stage.wait_for(lambda: bool(stage.heard("cannot_rejoin")), "a rank that gives up")
        assert "arranges its buckets" in str(stage.heard("cannot_rejoin")[0]["why"])
