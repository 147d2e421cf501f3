"""Script arguments: options in force wherever and however they stood, and paths of edited copies."""

import argparse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.configs.argv import check_template, pointed, resume_args
from faultrun.core import template
from faultrun.errors import ConfigError
from faultrun.model.edit import EditedCopy
from support.checkpoints.config_texts import hostile_text


@pytest.mark.parametrize(
    ("args", "options", "expected"),
    [
        ("--pre_trained=old x", ["--pre_trained=/new"], "--pre_trained=/new x"),
        ("--pre_trained old x", ["--pre_trained=/new"], "--pre_trained /new x"),
        ("-p old x", ["-p /new"], "-p /new x"),
        ("-p=old", ["-p /new"], "-p=/new"),
        ("x", ["--pre_trained=/new"], "x --pre_trained=/new"),
        ("x", ["--pre_trained /new"], "x --pre_trained /new"),
        ("--a=1 --a 2 x", ["--a=3"], "--a=3 --a 3 x"),
        ("--a --b=1", ["--a=3"], "--a=3 --b=1"),
        ("--b=1 --a", ["--a 3"], "--b=1 --a 3"),
        ("--lr -0.5", ["--lr=1"], "--lr 1"),
        ("--in - x", ["--in=y"], "--in y x"),
        ("--resume x", ["--resume"], "--resume x"),
        ("--resume=false", ["--resume"], "--resume"),
        ("x", ["--resume"], "x --resume"),
        ("--pre_trained_more=1", ["--pre_trained=2"], "--pre_trained_more=1 --pre_trained=2"),
        ("x -- --a=1", ["--a=2"], "x --a=2 -- --a=1"),
        ("model.ckpt=old +a.b=1", ["model.ckpt=/new", "+a.b=2"], "model.ckpt=/new +a.b=2"),
        ("name x", ["name=y"], "name x name=y"),
        ("", ["--a=", "--b=c=d"], "--a= --b=c=d"),
        ("--a=1", [], "--a=1"),
    ],
)
def test_an_option_is_in_force_wherever_it_stood(args: str, options: list[str], expected: str) -> None:
    assert resume_args(args.split(), options) == tuple(expected.split(" ") if expected else ())


WORDS = st.lists(
    st.sampled_from(["--pre_trained", "--pre_trained=a", "--epochs=3", "--flag", "--epochs", "5", "x.yaml"])
)


@settings(max_examples=50, deadline=None)
@given(WORDS, hostile_text, st.booleans())
def test_argparse_reads_the_new_value_whatever_was_there(args: str, value: str, joined: bool) -> None:
    option = f"--pre_trained={value}" if joined or value.startswith("-") else f"--pre_trained {value}"
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--pre_trained", nargs="?")
    parser.add_argument("--epochs", nargs="?")
    parser.add_argument("--flag", action="store_true")
    new = resume_args(args, [option])
    assert resume_args(new, [option]) == new
    if "--pre_trained" not in new and value != "--":  # which argparse drops, even behind a =
        found, _ = parser.parse_known_args(new)
        assert found.pre_trained == value


@settings(max_examples=50, deadline=None)
@given(WORDS, hostile_text)
def test_other_arguments_keep_their_order(args: str, value: str) -> None:
    assert resume_args(args, [f"--unheard_of={value}"]) == (*args, f"--unheard_of={value}")


@pytest.mark.parametrize("option", ["pre_trained", "", "--", "-", "- x", "=x", "/path"])
def test_what_is_no_option_is_refused(option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resume_args([], [option])
    assert "neither with a dash nor with NAME=" in caught.value.because


COPY = EditedCopy(
    original="conf/train.yaml",
    path="/log/edited/1/train.yaml",
    spellings=("conf/train.yaml", "/job/conf/train.yaml", "/mnt/conf/train.yaml"),
    reason="is read-only",
)


def test_every_way_to_name_the_original_names_the_copy() -> None:
    args = ["--config_path=./conf/train.yaml", "/job/conf/train.yaml", "-c", "conf//train.yaml", "other.yaml"]
    environ = {"CONFIG": "/mnt/conf/train.yaml", "HOME": "/job/conf", "EMPTY": ""}
    assert pointed(args, environ, [COPY]) == (
        (f"--config_path={COPY.path}", COPY.path, "-c", COPY.path, "other.yaml"),
        {"CONFIG": COPY.path, "HOME": "/job/conf", "EMPTY": ""},
    )


def test_a_copy_that_nobody_would_read_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        pointed(["--data=x"], {}, [COPY])
    assert str(caught.value) == (
        "the script cannot be pointed at an edited copy of conf/train.yaml\n"
        "  because: it is read-only, and no argument or environment variable names it\n"
        "  try:     pass its path to the script, for example --config=conf/train.yaml"
    )


FIELDS = ["{checkpoint}", "{run_id}", "{epoch}", "{rank}"]
PIECES = st.sampled_from([*FIELDS, "-", "--", "=", " ", "a", "lr", "+", ".", "_", "9", "{{", "}}"])


@settings(max_examples=500)
@given(st.lists(PIECES, max_size=7).map("".join), hostile_text, hostile_text, st.integers(-9, 9))
def test_a_template_that_is_taken_at_the_start_can_be_filled_with_whatever_comes(
    text: str, checkpoint: str, run_id: str, number: int
) -> None:
    try:
        parsed = template.parse(text)
        check_template(text)
    except ConfigError:
        return
    values = template.Values(
        checkpoint=checkpoint, run_id=run_id, incarnation=number, epoch=number, step=number, rank=number
    )
    resume_args(("--lr=1", "x"), [template.render(parsed, values)])


@pytest.mark.parametrize("text", ["{checkpoint}", "--{run_id}={checkpoint}", "{run_id}={checkpoint}", "a b"])
def test_what_is_no_option_is_refused_before_there_is_a_checkpoint(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a script option"):
        check_template(text)
