"""Stages with process groups of their own, in a function that makes them again: real ranks, real kills."""

from pathlib import Path
from typing import Any

import pytest

from sdk.support.rejoin_stage import RejoinStage, rejoining
from sdk.support.torch_imports import IMPORTS
from support.places import TESTS

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = TESTS / "sdk" / "scripts" / "train_pipeline.py"


def pipeline_of(folder: Path, *words: str):  # type: ignore[no-untyped-def]
    return rejoining(folder, SCRIPT, *words, world=4, imports=(*IMPORTS, "torch.distributed.pipelining"))


def ends(stage: RejoinStage) -> list[str]:
    assert stage.wait_ended() == [0] * stage.world, stage.logs()
    return [(stage.folder / f"final_{rank}").read_text() for rank in range(stage.world)]


def test_any_rank_of_any_stage_may_die_and_one_more_while_the_groups_are_made_again(tmp_path: Path) -> None:
    with pipeline_of(tmp_path / "undisturbed", "12") as stage:
        stage.begin()
        expected = ends(stage)
    deaths = "kill-3-5-updated", "kill-0-8-backward", "kill-1-11-begin"
    with pipeline_of(tmp_path / "hit", "12", *deaths) as stage:
        stage.begin()

        def strike(rank: Any, content: dict[str, Any]) -> None:
            if content["kind"] == "rejoined" and content["incarnation"] == 2 and rank.number == 2:
                stage.kill(2)

        stage.on_message = strike
        first = stage.pids()
        assert ends(stage) == expected
        stuck = stage.logs().count("stuck in a broken process group")  # a bug of gloo, which costs one more
        assert len(stage.incidents) == 4 + stuck
        assert {one["step"] for one in stage.incidents[stuck > 0].rejoined.values()} == {4}
        assert not set(first) & set(stage.pids()), "each has died once"
        steps = [
            [int(line.split()[0]) for line in (stage.folder / f"steps_{rank}").read_text().splitlines()]
            for rank in range(stage.world)
        ]
        assert all(set(range(1, 13)) - {5} <= {*one} for one in steps)
