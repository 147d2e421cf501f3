"""``--assume``: read as it is meant or refused with a reason, in the layers that all options have."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.cli.options.assume_option import assumed
from faultrun.cli.options.assume_values import assumptions, changed, defaults_in_words
from faultrun.cli.options.settings import Asked, collect
from faultrun.errors import ConfigError, UsageError
from faultrun.model.spec.assumptions import Assumptions, UsualLauncher


def test_what_is_named_is_changed_and_the_rest_stays() -> None:
    told = assumptions("notice=30min, restart=1h,launcher=none,relaunch=2s,hang=30m,devices=64")
    assert told == Assumptions(
        notice_s=1800, restart_s=3600, launcher=UsualLauncher.NONE, relaunch_s=2, hang_s=1800, devices=64
    )
    assert changed(told, "notice=0") == replace(told, notice_s=0)
    assert changed(told, "launcher=auto").launcher is None
    assert assumptions("") == Assumptions()


def test_the_default_is_shown_as_it_is_typed() -> None:
    assert assumptions(defaults_in_words().partition(";")[0]) == Assumptions()


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("notic=5m", "did you mean notice?"),
        (
            "notice",
            "'notice' is not one of notice, restart, launcher, relaunch, hang, devices, '=' and a value",
        ),
        ("notice=", "notice: '' is not a time"),
        ("notice=1d,notice=2d", "notice is given twice"),
        ("restart=31d", "31d is longer than"),
        ("launcher=torchrum", "did you mean torchrun?"),
        ("devices=0", "0 is not between 1 and"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_reason(text: str, because: str) -> None:
    with pytest.raises(ValueError, match=re.escape(because)):
        assumptions(text)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        assert isinstance(assumptions(text), Assumptions)
    except ValueError as error:
        assert str(error)


def test_a_verb_changes_what_the_run_was_told_by_option_or_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Assumptions(notice_s=60, hang_s=120)
    assert assumed(told, None) == told
    monkeypatch.setenv("FAULTRUN_ASSUME", "notice=2min")
    assert assumed(told, None) == replace(told, notice_s=120)
    assert assumed(told, "restart=0") == replace(told, restart_s=0)
    monkeypatch.setenv("FAULTRUN_ASSUME", "notice=never")
    with pytest.raises(UsageError) as refused:
        assumed(told, None)
    assert refused.value.what == "FAULTRUN_ASSUME=notice=never cannot be used"
    assert "FAULTRUN_ASSUME=notice=30min,restart=1h" in refused.value.hint


def test_a_run_takes_it_from_each_layer() -> None:
    environ = {"FAULTRUN_ASSUME": "notice=2min"}
    asked = Asked(options={}, words=("train.py",))
    assert collect(asked, environ).assume.notice_s == 120
    typed = Asked(options={"assume": ("notice=3min",)}, words=("train.py",))
    assert collect(typed, environ).assume.notice_s == 180


def test_a_wrong_line_of_the_config_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "faultrun.yaml"
    file.write_text("assume: notice=soon\n")
    settings = collect(Asked(options={"config": (str(file),)}, words=("train.py",)), {})
    with pytest.raises(ConfigError) as refused:
        _ = settings.assume
    assert refused.value.what == f"{file}:1 assume: notice=soon cannot be used"
