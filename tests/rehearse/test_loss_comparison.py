import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.rehearse.loss_comparison import compare, noise_of
from faultrun.rehearse.outcome import Likeness

UNDISTURBED = {f"step {step}": 3.0 - step / 10 for step in range(1, 10)}
LOSSES = st.dictionaries(
    st.integers(1, 30).map(lambda step: f"step {step}"), st.floats(0, 9, allow_nan=False), max_size=20
)


def part(first: int, **changes: float) -> dict[str, float]:
    kept = {place: loss for place, loss in UNDISTURBED.items() if int(place.split()[1]) >= first}
    return {**kept, **{place.replace("_", " "): loss for place, loss in changes.items()}}


def test_equal_losses_are_the_same_and_counted() -> None:
    found = compare(UNDISTURBED, part(6), noise=None)
    assert (found.likeness, found.compared, found.words) == (Likeness.SAME, 4, "")


def test_a_difference_is_told_with_its_place_and_both_values() -> None:
    found = compare(UNDISTURBED, part(6, step_8=4.0), noise=0.0)
    assert found.likeness is Likeness.DIFFER
    assert found.words == "by 1.8 at step 8: 4, undisturbed 2.2"


def test_the_first_loss_after_a_restart_may_be_a_mean_of_fewer_steps() -> None:
    found = compare(UNDISTURBED, part(6, step_6=9.0), noise=None)
    assert (found.likeness, found.words) == (Likeness.SAME, "but for the first, step 6")


def test_one_loss_alone_that_differs_is_a_difference() -> None:
    assert compare(UNDISTURBED, {"step 6": 9.0}, noise=None).likeness is Likeness.DIFFER


def test_what_two_undisturbed_starts_differ_by_is_no_difference() -> None:
    other = {place: loss + 0.01 for place, loss in UNDISTURBED.items()}
    noise = noise_of(UNDISTURBED, other)
    assert noise == pytest.approx(0.01)
    assert (
        compare(UNDISTURBED, part(3, step_5=UNDISTURBED["step 5"] + 0.009), noise).likeness is Likeness.SAME
    )
    assert (
        compare(UNDISTURBED, part(3, step_5=UNDISTURBED["step 5"] + 0.1), noise).likeness is Likeness.DIFFER
    )


@pytest.mark.parametrize("apart", [0.5, 5.0, float("nan")])
def test_two_undisturbed_starts_that_are_far_apart_prove_nothing(apart: float) -> None:
    noise = noise_of(UNDISTURBED, {place: loss + apart for place, loss in UNDISTURBED.items()})
    found = compare(UNDISTURBED, part(3, step_5=UNDISTURBED["step 5"] + 0.4), noise)
    assert found.likeness is Likeness.UNSEEDED
    assert found.words.startswith("two undisturbed starts differ by ")


def test_a_noise_as_wide_as_the_progress_proves_nothing() -> None:
    flat = {place: 3.0 + int(place.split()[1]) / 1000 for place in UNDISTURBED}
    again = {place: loss + 0.01 for place, loss in flat.items()}
    assert compare(flat, again, noise=0.02).likeness is Likeness.UNSEEDED
    assert compare(flat, {**flat, "step 5": 9.0}, noise=0.02).likeness is Likeness.UNSEEDED
    assert compare(flat, dict(flat), noise=0.02).likeness is Likeness.SAME


def test_nothing_in_common_is_unknown() -> None:
    assert compare(UNDISTURBED, {"step 99": 1.0}, noise=0.0).likeness is Likeness.UNKNOWN
    assert noise_of(UNDISTURBED, {}) is None


@given(LOSSES, LOSSES)
def test_only_places_that_were_compared_are_the_same(one: dict[str, float], other: dict[str, float]) -> None:
    found = compare(one, other, noise=None)
    assert (found.likeness is Likeness.UNKNOWN) == (not set(one) & set(other))
    assert found.compared == (len(set(one) & set(other)) if found.likeness is not Likeness.UNKNOWN else 0)
    apart = [place for place in other if place in one and one[place] != other[place]]
    assert (found.likeness is Likeness.DIFFER) <= bool(apart)
