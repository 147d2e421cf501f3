"""``--hang_timeout`` and its relatives: what is said, and what is meant by it."""

import pytest

from faultrun.cli.options.choices import one_of
from faultrun.cli.options.values import hang_factor, hang_limits, hang_timeout
from faultrun.model.observed.hang import HangPolicy, HangSignal, Span
from support.asking import plan, refusal


def policy(*words: str) -> HangPolicy:
    return plan("--worker_num=1", *words, "sleep", "1").spec.supervision.hang


def test_by_default_nothing_is_given_and_all_is_learnt() -> None:
    assert policy() == policy("--hang_timeout=auto") == policy("--hang_timeout=learnt") == HangPolicy()


def test_it_can_be_switched_off() -> None:
    assert not policy("--hang_timeout=off").enabled


def test_a_duration_is_the_limit_of_a_step_and_of_silence_and_no_compilation_has_less() -> None:
    said = policy("--hang_timeout=45m", "--hang_signal=log")
    assert said.step == Span(low_s=2700.0, high_s=2700.0)
    assert (said.quiet_s, said.compile_s, said.startup_s) == (2700.0, 2700.0, 2700.0)
    assert said.signal is HangSignal.LOG
    assert said.given == {"step", "quiet"}


def test_each_limit_can_be_given_and_learnt_ones_between_bounds() -> None:
    said = policy("--hang_limits=startup=5m,compile=1h,step=2s..10m,checkpoint=90s", "--hang_factor=8")
    assert (said.startup_s, said.compile_s, said.factor, said.speaks) == (300.0, 3600.0, 8.0, True)
    assert said.step == Span(low_s=2.0, high_s=600.0)
    assert said.checkpoint == Span(low_s=90.0, high_s=90.0)
    assert said.evaluation == HangPolicy().evaluation
    assert said.given == {"startup", "compile", "step", "checkpoint"}, "what a user gives is acted on"


@pytest.mark.parametrize(
    ("reader", "text", "why"),
    [
        (hang_timeout, "soon", "'soon' is not a time"),
        (hang_timeout, "1ms", "1ms is shorter than 100 ms"),
        (hang_factor, "1", "1 is not between 1 and 1000000"),
        (hang_factor, "nan", "nan is not between"),
        (hang_factor, "many", "'many' is not a number"),
        (hang_limits, "lunch=1h", "'lunch=1h' is not one of startup, compile, step, checkpoint, evaluation"),
        (hang_limits, "step", "'step' is not one of"),
        (hang_limits, "step=10m..1m", "10m is longer than 1m"),
        (hang_limits, "startup=1m..2m", "startup is not learnt"),
        (one_of(HangSignal), "smoke", "'smoke' is none of sdk, log"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_reason(reader: object, text: str, why: str) -> None:
    assert callable(reader)
    with pytest.raises(ValueError, match=why):
        reader(text)


def test_a_refusal_names_the_option_and_shows_a_use_that_works() -> None:
    error = refusal("--hang_limits=lunch=1h", "sleep", "1")
    assert "--hang_limits" in error.what
    assert "--hang_limits=" in error.hint
