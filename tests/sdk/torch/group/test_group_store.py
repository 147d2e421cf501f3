"""Whoever waits for ranks that will never come is told, and waits for nothing else."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from faultrun.sdk.stay.next_group import Join
from faultrun.sdk.torch.group.group_store import GroupBroken, open_store

pytestmark = pytest.mark.torch


def a_rank_that_waits(at: Path, is_over: Callable[[], bool]) -> tuple[threading.Thread, list[RuntimeError]]:
    """It alone of two has come. And what ends its wait."""
    at.touch()
    ended: list[RuntimeError] = []
    looks = threading.Event()

    def over() -> bool:
        looks.set()
        return is_over()

    def comes() -> None:
        try:
            join = Join(incarnation=1, store=str(at), page="", timeout_s=300.0)
            open_store(join, 10.0, over).meet(0, (0, 1))
        except RuntimeError as error:
            ended.append(error)

    waits = threading.Thread(target=comes, daemon=True)
    waits.start()
    assert looks.wait(60)
    return waits, ended


def test_the_file_of_a_group_that_gave_way_to_the_next_keeps_nobody(tmp_path: Path) -> None:
    """Two ranks died so close together that the next group's file came before word of the second death."""
    waits, ended = a_rank_that_waits(tmp_path / "store", lambda: False)
    (tmp_path / "store").unlink()
    waits.join(30)
    assert not waits.is_alive(), "it waits for a file that is gone"
    assert ended


def test_word_that_the_group_is_over_ends_the_wait(tmp_path: Path) -> None:
    over = threading.Event()
    waits, ended = a_rank_that_waits(tmp_path / "store", over.is_set)
    over.set()
    waits.join(30)
    assert isinstance(ended[0], GroupBroken)
