"""What is seen of a run that is rehearsed, and what a row says of where a life went on."""

from pathlib import Path

import pytest

from faultrun.model.observed.recovery import Began, ResumeChecked
from faultrun.rehearse.inject_faults import resumed_from, start_of
from faultrun.rehearse.log_progress import LogsSeen
from faultrun.rehearse.observed_saves import RehearsedSaves
from faultrun.rehearse.watched_run import LifeSeen, WatchedRun
from support.stories.story import checkpoint, first_plan

POINT = checkpoint(10)


def checked(began: Began) -> ResumeChecked:
    return ResumeChecked(at_s=0.0, incarnation=1, began=began, why="")


@pytest.mark.parametrize(
    ("life", "resumed", "start"),
    [
        (LifeSeen(number=1, point=POINT, checked=checked(Began.AS_CHOSEN)), "step 10, net-10.ckpt", 10),
        (LifeSeen(number=1, point=POINT, first=1, checked=checked(Began.ELSEWHERE)), "the beginning", 0),
        (LifeSeen(number=1, point=POINT, first=1), "the beginning", 0),
        (LifeSeen(number=1, point=POINT, first=7), "step 6, by the script itself", 6),
        (LifeSeen(number=1, point=POINT, checked=checked(Began.UNKNOWN)), "unknown", None),
        (LifeSeen(number=1, point=None), "unknown", None),
    ],
)  # fmt: skip
def test_a_row_says_what_was_seen(life: LifeSeen, resumed: str, start: int | None) -> None:
    assert (resumed_from(life, 1), start_of(life, 1)) == (resumed, start)


def test_the_last_lines_of_a_life_are_read_though_the_next_has_begun_by_then(tmp_path: Path) -> None:
    run = WatchedRun((), tmp_path, logs=LogsSeen(tmp_path, 2), saves=RehearsedSaves((str(tmp_path),)))
    log = tmp_path / "incarnation_0" / "worker_1.log"
    log.parent.mkdir()
    run.view.plan = first_plan(2)
    run.look()
    log.write_text("step 3\nPermissionError: [Errno 13] Permission denied\n")
    run.view.plan = first_plan(2, incarnation=2)
    run.look()
    assert run.logs.last_words(0, 1).endswith("Permission denied")
