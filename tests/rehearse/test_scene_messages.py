import math

import pytest

from faultrun.rehearse.outcome import Ailment, Fate, Likeness, LossCheck, Trial, Tried, Undisturbed
from faultrun.rehearse.scene_messages import (
    LossesTold,
    NowDoing,
    SceneFailed,
    SceneOver,
    Told,
    TriedTold,
    UndisturbedTold,
    told_of,
    written_line,
)

TRIED = Tried(
    trial=Trial.TORN,
    fate=Fate.LOST,
    lost_steps=4,
    again_s=0.5,
    losses=LossCheck(likeness=Likeness.DIFFER, compared=2, words="by 1"),
    ailments=(Ailment.BEGINS_ANEW,),
    note='a "quoted" line\nand another',
)


@pytest.mark.parametrize(
    "told",
    [
        NowDoing(text="waiting"),
        UndisturbedTold(part=Undisturbed(trained_s=3.0, saves=("a", "b")), losses=(("step 1", 0.5),)),
        TriedTold(tried=TRIED),
        LossesTold(life=2, losses=(("step 1", math.inf),)),
        SceneFailed(why="no overlay"),
        SceneOver(why="training had ended"),
    ],
)
def test_what_a_scene_tells_is_heard_as_it_was_told(told: Told) -> None:
    line = written_line(told)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert told_of(line) == told
