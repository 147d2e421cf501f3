"""Which step a log tells of: global ones, and those that are counted anew in every epoch; and the losses."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.logged_losses import losses_of, place_in, widest
from faultrun.core.logged_steps import LoggedStep, first_step, last_step, read, unread


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


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{:_}", LoggedStep(step=3500)),
        ("{:,}", LoggedStep(step=3500)),
        ("{:.3g}", None),
        ("{:.1e}", None),
        ("{:,}k", None),
    ],
)
def test_a_step_is_not_told_any_more_once_it_is_written_as_no_whole_number(
    written: str, told: LoggedStep | None
) -> None:
    lines = [f"step {n if n < 1000 else written.format(n)} loss 1.0" for n in range(100, 3600, 100)]
    assert last_step(lines) == told


def test_a_time_between_two_steps_hides_none() -> None:
    lines = [line for n in range(5) for line in (f"step {n} loss 1.0", f"step 0.{n}3s")]
    assert last_step(lines) == LoggedStep(step=4)


@given(length=st.integers(1, 50), done=st.integers(1, 500), kept=st.integers(1, 200), monitor=st.booleans())
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


def bar(done: int, of: int, after: str = "30.1it/s", what: str = "") -> str:
    share = 100 * done // of
    drawn = "█" * (share // 10) + "▍" * (share % 10 > 0)
    return f"{what}{share:3d}%|{drawn}  | {done}/{of} [00:01<00:02, {after}]"


LAYOUTS: dict[str, Callable[[int], str]] = {
    "nanogpt": lambda n: f"iter {n}: loss {3 / n:.4f}, time 50.20ms, mfu 1.50%",
    "megatron": lambda n: (
        f" [2026-11-28 10:00:{n % 60:02d}] iteration {n:>8}/    4000 | consumed samples: {n * 8:>9} | "
        f"elapsed time per iteration (ms): 70.1 | global batch size:     8 | lm loss: {1 / n:.6E} |"
    ),
    "mmengine by iterations": lambda n: (
        f"11/28 10:00:00 - mmengine - INFO - Iter(train) [{n:>4}/4000]  lr: 1.0e-02  time: 0.0012  loss: 2.0"
    ),
    "detectron": lambda n: f"[11/28 10:00:00 d2.utils.events]:  eta: 0:10:00  iter: {n}  total_loss: 0.5",
    "it": lambda n: f"it {n} | loss 0.5 | 3.1 it/s",
    "xgboost": lambda n: f"[{n}]\ttrain-rmse:0.{n}\tvalid-rmse:0.{n}1",
    "json": lambda n: f'{{"step": {n}, "loss": 0.5, "lr": 1e-05}}',
    "coloured": lambda n: f"\x1b[32mINFO\x1b[0m train.py:41 \x1b[1mStep {n}\x1b[0m | loss=0.5 | 1{n} tok/s",
    "thousands": lambda n: f"step {n + 1000:,} loss 0.4",
    "no loss": lambda n: f"step {n} took 0.3 s",
}
BEFORE: tuple[list[str], ...] = (
    ["Step 1/3: tokenizing data", "Step 2/3: building index", "Step 3/3: building model"],
    ["step 1: loading shard a", "step 2: loading shard b", "step 3: loading shard c"],
    [bar(done, 40, "900 examples/s", "Map: ") for done in (0, 13, 40)],
    [bar(done, 12) for done in (1, 2, 12)],
    ["[1/4] install 0.3", "[2/4] compile 2.0"],
    ["max step: 4000", "begins at step 999", "Resumed from step 999", "sanity check step 1 loss 3.0"],
    [],
)
BESIDE: tuple[Callable[[int], list[str]], ...] = (
    lambda n: [f"step {n}: train loss 1.2, val loss 1.3"],
    lambda n: [f"next checkpoint at step {n + 1000}"],
    lambda n: [f"dev step {k} loss 0.3" for k in range(3)],
    lambda n: [f"Epoch(val) [1][{k}/3]    accuracy/top1: 76.1" for k in (1, 2, 3)],
    lambda n: [bar(k, 3, "9.1it/s", "Evaluating: ") for k in (0, 1, 3)],
    lambda n: [],
)


@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    before=st.sampled_from(BEFORE),
    beside=st.sampled_from(BESIDE),
    first=st.integers(1, 300),
    steps=st.integers(8, 60),
)
def test_training_is_told_from_what_comes_before_it_and_beside_it(
    layout: str, before: list[str], beside: Callable[[int], list[str]], first: int, steps: int
) -> None:
    lines, seen, told = list(before), unread(), None
    for n in range(first, first + steps):
        lines += beside(n) if n % 20 == 0 and n > first + 2 else []
        lines.append(LAYOUTS[layout](n))
    for line in lines:
        seen = read(seen, [line])
        told = told or seen.first(ended=False)
    more = 1000 if layout == "thousands" else 0
    assert told is not None
    assert (told.step, told.epoch) == (first + more, None)
    last = seen.last()
    assert last is not None
    assert last.step == first + steps - 1 + more


@pytest.mark.parametrize("before", [one for one in BEFORE if one])
def test_preparation_alone_is_no_training(before: list[str]) -> None:
    assert read(unread(), before).first(ended=False) is None


def timm(epoch: int, at: int) -> str:
    return f"Train: {epoch} [{at:>4d}/12 ({100 * at // 11:>3d}%)]  Loss: 6.94 (6.94)  Time: 0.523s"


def mmengine(epoch: int, at: int) -> str:
    return f"11/28 10:00:00 - mmengine - INFO - Epoch(train)  [{epoch}][{at:>2}/40]  lr: 1.0e-02  loss: 2.0"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([timm(epoch, at) for epoch in range(6) for at in (0, 4)], LoggedStep(step=64, epoch=5, in_epoch=4)),
        ([timm(5, 0), timm(5, 4)], LoggedStep(epoch=5, in_epoch=4)),
        ([mmengine(3, 40), mmengine(4, 5)], LoggedStep(step=125, epoch=4, in_epoch=5)),
        ([bar(at, 9, "loss=0.3") for _ in range(2) for at in (0, 4, 9)], LoggedStep(in_epoch=9)),
        (
            [bar(1, 9, "loss=0.3", "Epoch 0: "), bar(4, 9, "loss=0.3", "Epoch 3: ")],
            LoggedStep(step=31, epoch=3, in_epoch=4),
        ),
        (
            ["step 1 loss 2.0", "step 2 loss 1.9", "step 3 loss 1.8", "step 1 loss 1.7", "step 2 loss 1.6"],
            LoggedStep(in_epoch=2),
        ),
        (
            [line for n in range(20, 75) for line in (bar(n, 99), f"{{'loss': 2.1, 'epoch': {n / 50}}}")],
            LoggedStep(step=74),
        ),
    ],
)  # fmt: skip
def test_a_number_in_an_epoch_is_global_only_where_that_is_sure(lines: list[str], told: LoggedStep) -> None:
    assert last_step(lines) == told


@pytest.mark.parametrize("of", ["/100", ""])
def test_what_is_over_is_not_training_however_often_it_was_printed(of: str) -> None:
    """A search for the learning rate trains, and has a loss."""
    searched = [f"lr_find step {n}{of} loss 3.1" for n in range(1, 101)]
    lines = [*searched, *(f"step {n} loss 0.3" for n in range(1, 30 if of else 110))]
    assert last_step(lines) == LoggedStep(step=29 if of else 109)


def test_lines_may_be_given() -> None:
    lines = ["step 900 loss 0.1", "== round 7 of age 2 ==", "== round 8 of age 2 =="]
    assert last_step(lines, r"round (?P<step>\d+)") == LoggedStep(step=8)
    assert first_step(lines, r"round (?P<step>\d+) of age (?P<epoch>\d+)") == LoggedStep(step=7, epoch=2)
    assert first_step(lines, r"turn (?P<step>\d+)") is None


@pytest.mark.parametrize(
    ("line", "place", "loss"),
    [
        ("rank 0 epoch 4 step 85 loss 2.215791", "epoch 4 step 85", 2.215791),
        ("step 12 loss 0.5", "step 12", 0.5),
        ("step: 7, train_loss=1e-3", "step 7", 0.001),
        ("epoch: 2 step: 3, loss is 1.25", "epoch 2 step 3", 1.25),
        ("{'loss': 2.1953, 'grad_norm': 1.2, 'epoch': 0.53}", "epoch 0.53", 2.1953),
        ("iteration log: global_step 9 | loss: .25 | lr 1e-4", "step 9", 0.25),
    ],
)
def test_a_loss_is_read_with_the_place_that_its_line_names(line: str, place: str, loss: float) -> None:
    assert losses_of([line]) == {place: loss}


@pytest.mark.parametrize(
    "line",
    [
        *("val_loss 0.5 at step 12", "step 12 eval loss 0.5", "loss 0.5"),
        *("step 12 lossless 3", "step 12 loss unknown", "validation step 3 loss 0.5"),
    ],
)
def test_what_is_no_loss_of_a_step_of_training_is_passed_over(line: str) -> None:
    assert losses_of([line]) == {}


def test_the_last_of_several_counts_and_a_place_may_be_without_a_loss() -> None:
    assert losses_of(["step 1 loss 3.0", "step 1 loss 2.0"]) == {"step 1": 2.0}
    assert place_in("step 4 done") == "step 4"
    assert place_in("hello") == ""


def test_the_widest_difference_is_of_the_places_that_both_have() -> None:
    assert widest({"a": 1.0, "b": 2.0}, {"b": 2.5, "c": 9.0, "a": 1.1}) == ("b", 0.5)
    assert widest({"a": 1.0}, {"b": 1.0}) is None


def test_two_that_are_no_number_are_alike_and_one_is_not() -> None:
    assert widest({"a": math.nan}, {"a": math.nan}) == ("a", 0.0)
    assert widest({"a": math.nan}, {"a": 1.0}) == ("a", math.inf)
    assert widest({"a": math.inf}, {"a": math.inf}) == ("a", 0.0)


@pytest.mark.parametrize(("every", "lines"), [(0, 1), (1, 30), (10, 4)])
def test_how_many_steps_lie_between_two_that_a_log_tells_is_seen(every: int, lines: int) -> None:
    told = last_step([f"step {at * (every or 1)} loss {1 / at:.4f}" for at in range(1, lines + 1)])
    assert told is not None
    assert told.every == every
