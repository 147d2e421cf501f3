import math

import pytest

from faultrun.core.logged_losses import losses_of, place_in, widest


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
