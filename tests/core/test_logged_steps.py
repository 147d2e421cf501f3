"""Which step a log tells of: global ones, and those that are counted anew in every epoch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.logged_steps import LoggedStep, first_step, last_step


def loss_monitor(epoch: int, step: int) -> str:
    return f"epoch: {epoch} step: {step}, loss is 2.3"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["step 4 loss 0.1", "step 5 loss 0.1"], LoggedStep(step=5)),
        (["global_step=70 epoch 3"], LoggedStep(step=70, epoch=3)),
        (["epoch 2 step 130"], LoggedStep(step=130, epoch=2)),
        (["Epoch 2", "step 130", "saved"], LoggedStep(step=130, epoch=2)),
        ([loss_monitor(1, 60)], LoggedStep(step=60, epoch=1, in_epoch=60)),
        ([loss_monitor(3, 2)], LoggedStep(epoch=3, in_epoch=2)),
        (
            [loss_monitor(2, 31), loss_monitor(2, 32), loss_monitor(3, 2)],
            LoggedStep(step=66, epoch=3, in_epoch=2),
        ),
        ([loss_monitor(2, 10), loss_monitor(2, 20), loss_monitor(3, 10)], LoggedStep(epoch=3, in_epoch=10)),
        (["{ Epoch:[  2/  9], step:[    3/   32], loss: 1.0 }"], LoggedStep(step=35, epoch=2, in_epoch=3)),
        (["epoch 0 step 7", "epoch 1 step 0"], LoggedStep(epoch=1, in_epoch=0)),
        (["epoch: [1/6] loss: 2.0"], LoggedStep(epoch=1)),
        (["the first step 0.3 s"], None),
        (["stepping stone 4", "misstep 4"], None),
        (["step 5", "\u0131nference step 9", "\u017fanity check step 9"], LoggedStep(step=5)),
        ([], None),
    ],
)
def test_what_is_printed_is_read_as_it_is_meant(lines: list[str], told: LoggedStep | None) -> None:
    assert last_step(lines) == told


@given(
    length=st.integers(1, 50),
    done=st.integers(1, 500),
    kept=st.integers(1, 200),
    monitor=st.booleans(),
)
def test_a_global_step_that_is_told_is_the_true_one(length: int, done: int, kept: int, monitor: bool) -> None:
    lines = []
    for at in range(done):
        epoch, step = at // length + 1, at % length + 1
        text = loss_monitor(epoch, step) if monitor else f"Epoch: [{epoch}] Step: [{step}/{length}] loss 1"
        lines.append(text)
    told = last_step(lines[-kept:])
    assert told is not None
    assert (told.epoch, told.in_epoch) == ((done - 1) // length + 1, (done - 1) % length + 1)
    assert told.step in (done, None)
    assert told.step == done or monitor


@pytest.mark.parametrize(
    "line",
    [
        "validation step 0 loss 3", "val/step: 2", "Val step 2 loss 2.1", "eval_global_step 4",
        "test - step [1/9]",
        "Sanity Checking step 1", "sanity check step 100 ok", "epoch 1 eval step 3/10", "warm-up step 7",
    ],
)  # fmt: skip
def test_a_step_beside_the_training_is_none_of_it(line: str) -> None:
    assert first_step([line, "step 16 val_loss 2.0"]) == LoggedStep(step=16)
    assert first_step([line]) is None
    assert last_step(["step 17 loss 1", line]) == LoggedStep(step=17)
