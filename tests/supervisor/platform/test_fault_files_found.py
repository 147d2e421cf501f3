"""Ranks that the platform calls faulty: a replica's file is taken instead, but theirs before none."""

from pathlib import Path

import pytest

from faultrun.checkpoints.catalog import Catalog
from faultrun.model.actions import FindRecoveryPoint
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import RecoveryPointChosen
from faultrun.model.spec.run_spec import Recovery, Resume
from faultrun.supervisor.checkpoints.finder import CheckpointFinder
from faultrun.supervisor.reactor import RunClock
from support.checkpoints.ckpt_bytes import ckpt
from support.stories.specs import a_spec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two ranks of pure data parallel training saved step 8, rank 0 alone step 16."""
    for rank, steps in ((0, (8, 16)), (1, (8,))):
        (tmp_path / f"rank_{rank}").mkdir()
        for step in steps:
            (tmp_path / f"rank_{rank}" / f"net-{step // 8}_8.ckpt").write_bytes(ckpt(step // 8, step))
    return tmp_path


def chosen(folder: Path, *lost: int) -> RecoveryPoint:
    recovery = Recovery(checkpoint_dirs=(str(folder),), resume=Resume.ALWAYS)
    spec = a_spec(workers=2, recovery=recovery)
    finder = CheckpointFinder(spec, Catalog((str(folder),), settle_s=0.0), RunClock())
    answer = finder.find(FindRecoveryPoint(incarnation=0, continuing=True, lost=lost), 0.0)
    assert isinstance(answer, RecoveryPointChosen)
    assert answer.point is not None
    return answer.point


def test_without_faults_the_newest_file_serves(folder: Path) -> None:
    assert chosen(folder).path == str(folder / "rank_0" / "net-2_8.ckpt")


def test_a_faulty_ranks_files_are_passed_over_even_if_that_costs_steps(folder: Path) -> None:
    point = chosen(folder, 0)
    assert point.path == str(folder / "rank_1" / "net-1_8.ckpt")
    assert {file.from_rank for file in point.files} == {1}
    assert point.restore_ranks == "1"


def test_where_no_rank_can_stand_in_a_whole_file_of_a_faulty_rank_is_better_than_none(folder: Path) -> None:
    assert chosen(folder, 0, 1).path == str(folder / "rank_0" / "net-2_8.ckpt")
