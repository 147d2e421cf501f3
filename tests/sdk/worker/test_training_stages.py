"""Whose the recovery point is, where a script trains more than once."""

from pathlib import Path

import pytest

from faultrun.errors import FaultrunError
from faultrun.sdk.session import ResumePoint
from faultrun.sdk.worker.training_stages import Stages, TrainingFolders, saving_in


def place(folder: Path) -> TrainingFolders:
    return saving_in([folder], folder / "_gasp")


def stages(path: Path) -> Stages:
    return Stages(ResumePoint(path=str(path), step=7, epoch=None, reason="fault", incarnation=1))


def test_a_place_holds_its_checkpoints_through_links_and_not_those_of_nested_stages(tmp_path: Path) -> None:
    outer = place(tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    assert outer.holds(tmp_path / "link" / "checkpoint-7")
    assert outer.holds(tmp_path / "out" / "_gasp" / "rank_1" / "checkpoint-7")
    assert not outer.holds(tmp_path / "out" / "fine" / "checkpoint-7")
    assert not outer.holds(tmp_path / "out" / "fine" / "_gasp" / "rank_1" / "checkpoint-7")


def test_a_point_is_used_up_by_the_training_whose_it_is(tmp_path: Path) -> None:
    point = tmp_path / "a" / "checkpoint-7"
    ours = stages(point)
    ours.begins(place(tmp_path / "a"), str(point))
    ours.begins(place(tmp_path / "a"), str(point))  # again, with smaller batches
    assert not ours.is_used_up()
    ours.ends()
    assert ours.is_used_up()
    ours.begins(place(tmp_path / "b"), None)


@pytest.mark.parametrize(
    ("first", "second", "again", "why"),
    [
        ("a", "a", False, "in the same folders"),
        ("a", "b", True, "went on from it already"),
        ("b", "a", True, "went on from it already"),
        ("b", "a", False, "it lies elsewhere"),
    ],
)
def test_where_nobody_can_tell_the_second_training_is_refused(
    tmp_path: Path, first: str, second: str, again: bool, why: str
) -> None:
    point = tmp_path / "a" / "checkpoint-7"
    ours = stages(point)
    ours.begins(place(tmp_path / first), str(point))
    ours.ends()
    with pytest.raises(FaultrunError, match=why):
        ours.begins(place(tmp_path / second), str(point) if again else None)


def test_one_folder_for_two_trainings_is_told_before_anything_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = Stages(None)
    ours.begins(place(tmp_path / "a"), None)
    ours.ends()
    assert capsys.readouterr().err == ""
    ours.begins(place(tmp_path / "a"), None)
    assert "give each its own" in capsys.readouterr().err
