"""A resume is proved by the first step after it, by the SDK's count or by a log's, or it is not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.recovery.resume_verdict import Opened, check, done_again, opened_of, place_of
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import FirstStep
from faultrun.model.observed.recovery import Began, FirstStepLogged, ResumeChecked
from faultrun.model.spec.run_spec import Recovery, Rewrite
from support.stories.story import checkpoint

TOLD = Recovery(resume_args=("--resume={checkpoint}",))
UNTOLD = Recovery(script_asks=False)
AT_80 = checkpoint(80)
BESIDE = Opened(seen=True, others=("best.pt",), several=True)
IN_EPOCH_5 = replace(AT_80, global_step=None, epoch=5)


def stepped(began: int) -> FirstStep:
    return FirstStep(at_s=9, incarnation=1, step=began + 3, began=began)


def logged(step: int | None = None, epoch: int | None = None, in_epoch: int | None = None) -> FirstStepLogged:
    return FirstStepLogged(at_s=9, incarnation=1, rank=0, step=step, epoch=epoch, in_epoch=in_epoch)


def checked(
    first: FirstStep | FirstStepLogged,
    point: RecoveryPoint | None = AT_80,
    recovery: Recovery = TOLD,
    origin: FirstStep | FirstStepLogged | None = None,
) -> ResumeChecked:
    return check(first, point, recovery, None if origin is None else place_of(origin))


def test_who_goes_on_behind_the_step_that_was_handed_over_resumed_as_chosen() -> None:
    found = checked(stepped(81))
    assert (found.began, found.step, found.chosen_step) == (Began.AS_CHOSEN, 81, 80)
    assert found.why == "training again at step 81, as chosen"
    assert checked(logged(90)).why == "training again at step 90 by its log, as chosen"


@pytest.mark.parametrize(
    ("recovery", "reason"),
    [
        (TOLD, "was handed over: does it act on --resume={checkpoint}?"),
        (
            Recovery(rewrites=(Rewrite(file="a.yaml", key="pre_trained"),)),
            "was handed over: does it read pre_trained of a.yaml?",
        ),
        (Recovery(script_asks=True), "was handed over: does it load FAULTRUN_RESUME_FROM before its loop?"),
        (
            UNTOLD,
            "lies there: nothing tells the script: --resume_arg, --rewrite, "
            "or FAULTRUN_RESUME_FROM in the script",
        ),
    ],
)
def test_who_begins_before_it_is_said_to_with_the_likely_reason(recovery: Recovery, reason: str) -> None:
    found = checked(stepped(1), recovery=recovery)
    assert found.began is Began.ELSEWHERE
    assert found.why == f"the script began at step 1 although step 80 {reason}"


@pytest.mark.parametrize(
    ("first", "point", "origin", "began"),
    [
        (logged(2, epoch=3), replace(AT_80, epoch=None), None, Began.UNKNOWN),  # step 2 of epoch 3, perhaps
        (logged(74), replace(AT_80, named_step=80), logged(1), Began.UNKNOWN),  # 80 is of the furthest rank
        (logged(11), replace(AT_80, named_step=80), logged(1), Began.ELSEWHERE),
        (logged(2, epoch=3), AT_80, logged(2, epoch=3), Began.ELSEWHERE),
        (logged(None, 3, 2), AT_80, logged(None, 1, 1), Began.AS_CHOSEN),  # the checkpoint is of epoch 1
        (logged(None, 1, 1), AT_80, logged(None, 1, 1), Began.ELSEWHERE),
        (logged(1, 1, 1), AT_80, logged(1, 1, 1), Began.ELSEWHERE),
        (logged(epoch=6), IN_EPOCH_5, None, Began.AS_CHOSEN),
        (logged(epoch=4), IN_EPOCH_5, None, Began.UNKNOWN),  # from 0 here, from 1 there, perhaps
        (logged(epoch=1), IN_EPOCH_5, None, Began.ELSEWHERE),
        (logged(10), replace(AT_80, global_step=None, epoch=None), None, Began.UNKNOWN),
        (logged(1), None, logged(1), Began.AS_CHOSEN),
        (logged(epoch=9), None, logged(epoch=0), Began.ELSEWHERE),  # its own snapshot
        (logged(1), None, None, Began.UNKNOWN),
    ],
)
def test_what_a_log_counts_is_compared_only_where_it_means_the_same(
    first: FirstStepLogged, point: RecoveryPoint | None, origin: FirstStepLogged | None, began: Began
) -> None:
    assert checked(first, point, origin=origin).began is began


@given(point=st.integers(0, 500), length=st.integers(1, 60), honest=st.booleans(), zero=st.booleans())
def test_whoever_resumes_is_never_said_to_have_begun_anew_and_who_begins_anew_never_to_have_resumed(
    point: int, length: int, honest: bool, zero: bool
) -> None:
    """A script that prints epoch and step of the epoch, from 0 or from 1, with epochs of any length."""

    def printed(at: int) -> FirstStepLogged:
        base = 0 if zero else 1
        return logged(None, at // length + base, at % length + base)

    chosen = replace(checkpoint(point), epoch=None)
    found = checked(printed(point if honest else 0), chosen, origin=printed(0)).began
    if honest and point > 0:
        assert found is not Began.ELSEWHERE
    if not honest and point > 0:
        assert found is Began.ELSEWHERE


@pytest.mark.parametrize(
    ("first", "opened", "began"),
    [
        (stepped(81), Opened(seen=True, chosen=True, others=("best.pt",)), Began.AS_CHOSEN),
        (stepped(81), Opened(seen=True), Began.AS_CHOSEN),  # by its step
        (stepped(81), Opened(seen=True, others=("last.pt",)), Began.AS_CHOSEN),  # a copy of it
        (stepped(61), Opened(seen=True, others=("last.pt",)), Began.ELSEWHERE),
        (stepped(141), Opened(seen=True, others=("last.pt",)), Began.ELSEWHERE),
        (stepped(141), Opened(seen=True), Began.UNKNOWN),
        (stepped(141), Opened(), Began.UNKNOWN),
        (stepped(1), Opened(seen=True, chosen=True), Began.ELSEWHERE),
        (logged(1), Opened(seen=True, chosen=True), Began.UNKNOWN),  # it may count otherwise in its log
        (logged(90), Opened(), Began.AS_CHOSEN),
        (logged(900), Opened(), Began.UNKNOWN),
        (logged(900), Opened(seen=True, chosen=True), Began.AS_CHOSEN),
        (stepped(90), BESIDE, Began.AS_CHOSEN),  # another node may have loaded step 80, and tells each tenth
        (stepped(61), BESIDE, Began.ELSEWHERE),
        (stepped(141), BESIDE, Began.ELSEWHERE),
        (logged(150), BESIDE, Began.AS_CHOSEN),
        (logged(epoch=1), BESIDE, Began.AS_CHOSEN),
    ],
)
def test_what_was_opened_is_laid_beside_the_step(
    first: FirstStep | FirstStepLogged, opened: Opened, began: Began
) -> None:
    assert check(first, AT_80, TOLD, None, opened).began is began


def test_it_says_what_was_opened_instead() -> None:
    opened = opened_of(("/c/last.pt",), replace(AT_80, path="/c/step-80.pt", files=()))
    found = check(stepped(61), replace(AT_80, path="/c/step-80.pt"), TOLD, None, opened)
    assert found.why == "the script opened last.pt, not step-80.pt, and began at step 61"
    found = check(stepped(61), AT_80, TOLD, None, BESIDE)
    assert found.why.startswith("the script on this node opened best.pt, not ")


def test_a_program_that_the_sdk_did_not_give_the_point_to_is_told_why() -> None:
    refused = Opened(seen=True, others=("end.pt",), refused="it was saved by tune.py")
    told = "the script began at step 1 although step 80 was handed over: it was saved by tune.py"
    assert check(stepped(1), AT_80, TOLD, None, refused).why == told


def test_a_folder_was_opened_if_a_file_in_it_was() -> None:
    point = replace(AT_80, path="/c/step_80", files=())
    assert opened_of(("/c/step_80/model.pt",), point) == Opened(seen=True, chosen=True)
    assert opened_of(("/c/step_800/model.pt",), point).others == ("/c/step_800/model.pt",)


@given(
    last=st.integers(1, 99),
    saved=st.integers(0, 98),
    offset=st.sampled_from([0, 1]),
    every=st.sampled_from([0, 1, 2, 10]),
)
def test_steps_done_again_are_counted_in_the_count_of_the_log_or_not_at_all(
    last: int, saved: int, offset: int, every: int
) -> None:
    saved = min(saved, last)
    ended = place_of(logged(last - offset))
    found = done_again(ended, place_of(logged(saved + 1 - offset)), every)
    assert found == (last - saved if every == 1 else None)
    assert done_again(ended, place_of(stepped(saved + 1)), every) is None


@pytest.mark.parametrize(
    ("last", "first", "twice"),
    [
        (logged(None, 2, 17), logged(None, 2, 16), 2),
        (logged(None, 2, 17), logged(None, 1, 16), None),
        (logged(None, 2, 20), logged(None, 3, 1), 0),
        (logged(37, 2), logged(36, 2), 2),
        (logged(37, 2), logged(16, 1), None),
        (logged(50, 4), logged(51, 5), 0),
        (logged(None, 2), logged(None, 2), None),
    ],
)
def test_a_place_within_an_epoch_is_compared_with_one_of_the_same_epoch(
    last: FirstStepLogged, first: FirstStepLogged, twice: int | None
) -> None:
    assert done_again(place_of(last), place_of(first), 1) == twice
