"""Scalars for TensorBoard, read back by TensorBoard's own reader."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.wire import SLOT_BYTES, Progress, pack_progress
from faultrun.observe.outlets.tensorboard import Scalars
from support.machine.processes import files_limited_to
from support.stories.account_stories import begins, decoded, lines_of, one_fault
from support.stories.story import Story


def read(folder: Path) -> list[tuple[int, str, float]]:
    """Step, tag and value of every scalar in the one file."""
    (path,) = folder.iterdir()
    events = LegacyEventFileLoader(str(path)).Load()
    return [(event.step, one.tag, one.simple_value) for event in events for one in event.summary.value]


def told(
    folder: Path, story: Story, *, begins_at: int = 0, now: Callable[[], float] = time.monotonic
) -> Scalars:
    made = Scalars(folder, folder / "tb", RestartPolicy(), begins_at, now)
    for line in decoded([{"seq": number, **line} for number, line in enumerate(lines_of(story))]):
        made.take(line)
    return made


def test_a_recovery_is_a_point_at_the_step_where_training_was(tmp_path: Path) -> None:
    told(tmp_path, one_fault(resume_at=61)).end()
    found = {(tag.removeprefix("faultrun/"), step): value for step, tag, value in read(tmp_path / "tb")}
    assert found == {
        ("recovery_seconds", 262): 15,
        ("lost_steps", 262): 40,
        ("incarnation", 262): 1,
        ("workers_up", 262): 0,
        ("productive_ratio", 262): pytest.approx(261 / 325),
    }


def test_the_pace_is_that_of_the_slowest_rank(tmp_path: Path) -> None:
    now_s = [1000.0]
    page = tmp_path / "incarnation_0" / "progress"
    page.parent.mkdir()

    def reached(*steps: int) -> None:
        words = (
            Progress(step=step, epoch=-1, phase=0, at_monotonic_s=now_s[0], count=step) for step in steps
        )
        page.write_bytes(b"".join(pack_progress(word).ljust(SLOT_BYTES, b"\0") for word in words))

    made = told(tmp_path, begins(Story(2)), now=lambda: now_s[0])
    reached(100, 90)
    made.tick()
    now_s[0] += 20
    reached(160, 140)
    made.tick()
    assert (160, "faultrun/steps_per_second", 2.5) in read(tmp_path / "tb")


def test_what_a_supervisor_before_has_written_is_not_written_again(tmp_path: Path) -> None:
    told(tmp_path, one_fault(resume_at=61), begins_at=1000).end()
    assert "faultrun/recovery_seconds" not in {tag for _, tag, _ in read(tmp_path / "tb")}


def test_on_a_full_disk_the_file_stays_readable(tmp_path: Path) -> None:
    made = told(tmp_path, one_fault(resume_at=61))
    made.end()
    (path,) = (tmp_path / "tb").iterdir()
    whole = path.read_bytes()
    with files_limited_to(path.stat().st_size + 20):
        made.end()
    assert path.read_bytes() == whole
    made.end()
    assert len(read(tmp_path / "tb")) > 5
