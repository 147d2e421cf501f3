"""What a row says of where a life went on: what was seen, and unknown where nothing was."""

import pytest

from faultrun.model.observed.recovery import Began, ResumeChecked
from faultrun.rehearse.inject_faults import resumed_from, start_of
from faultrun.rehearse.watched_run import LifeSeen
from support.stories.story import checkpoint

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
