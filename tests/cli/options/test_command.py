"""Words on the command line: which are ours, which are the script's, and what a wrong one is told."""

from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.cli.options.option import Option, Takes
from faultrun.cli.options.settings import OPTIONS
from faultrun.errors import UsageError
from support.asking import ask, program
from support.machine.scripts import printed

ANY_WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
OPTION_LIKE = st.sampled_from(
    ["--worker_num=9", "--join", "--help", "--", "-m", "-t", "--version", "--log_dir"]
)


def wrong(*words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        ask(*words)
    return caught.value


@pytest.mark.parametrize("option", list(OPTIONS.values()), ids=lambda option: option.name)
def test_every_option_is_accepted_with_underscores_and_with_dashes(option: Option[Any]) -> None:
    value = [] if option.takes is Takes.NOTHING else ["1"]
    for spelling in (option.name, option.name.replace("_", "-")):
        asked = ask(f"--{spelling}", *value, "train.py")
        assert asked.options.keys() == {option.name}
        assert asked.words == ("train.py",)


@pytest.mark.parametrize("option", list(OPTIONS.values()), ids=lambda option: option.name)
def test_the_example_of_every_option_is_understood(option: Option[Any]) -> None:
    words = option.use.split()
    assert option.name in ask(*words, "train.py").options


@settings(max_examples=60)
@given(rest=st.lists(ANY_WORD | OPTION_LIKE, max_size=6))
def test_everything_after_the_script_belongs_to_the_script(rest: list[str]) -> None:
    assert ask("--worker_num=4", "--join", "train.py", *rest).words == ("train.py", *rest)
    assert ask("run", "train.py", *rest).words == ("train.py", *rest)
    assert ask("--", "train.py", *rest).words == ("train.py", *rest)


def test_the_verb_run_may_be_left_out() -> None:
    assert ask("--worker_num=4", "train.py") == ask("run", "--worker_num=4", "train.py")
    assert ask("train.py") == ask("run", "train.py")


def test_other_verbs_come_first_and_a_file_of_that_name_is_run_by_its_path() -> None:
    group = program()

    @group.command("status")
    def status() -> str:
        return "the status of a run"

    assert group.main(["status"], "faultrun", standalone_mode=False) == "the status of a run"
    assert group.main(["./status"], "faultrun", standalone_mode=False).words == ("./status",)
    asked = group.main(["--log_dir", "d", "status"], "faultrun", standalone_mode=False)
    assert asked.words == ("status",)


@pytest.mark.parametrize(
    ("words", "join", "script"),
    [
        (["--join=False", "train.py"], "False", "train.py"),
        (["--join", "False", "train.py"], "false", "train.py"),
        (["--join", "True", "train.py"], "true", "train.py"),
        (["--join", "train.py"], "True", "train.py"),
        (["--join", "--worker_num", "4", "train.py"], "True", "train.py"),
        (["--worker_num", "4", "--join", "train.py"], "True", "train.py"),
        (["-mt", "3", "--join", "train"], "True", "train"),
        (["--log_dir", "--join", "train.py"], None, "train.py"),
    ],
)
def test_join_takes_a_literal_or_nothing_and_never_the_script(
    words: list[str], join: str | None, script: str
) -> None:
    asked = ask(*words)
    assert asked.options.get("join", (None,))[0] == join
    assert asked.words == (script,)


def test_a_negative_value_is_a_value_and_not_an_option() -> None:
    assert ask("--sim_level", "-1", "--node_rank", "-1", "train.py").options == {
        "sim_level": ("-1",),
        "node_rank": ("-1",),
    }


def test_short_options_may_be_joined_as_torchrun_users_write_them() -> None:
    asked = ask("-r3", "-t", "0:1,1:2", "-m", "mypackage.train", "--lr", "1")
    assert asked.options == {"redirects": ("3",), "tee": ("0:1,1:2",), "module": ("True",)}
    assert asked.words == ("mypackage.train", "--lr", "1")


def test_repeatable_options_keep_every_value_and_others_the_last() -> None:
    asked = ask(
        "--resume_arg=--a", "--resume_arg", "--b={checkpoint}", "--worker_num=1", "--worker_num=2", "s"
    )
    assert asked.options == {"resume_arg": ("--a", "--b={checkpoint}"), "worker_num": ("2",)}


def test_an_unknown_option_is_answered_with_the_one_that_was_meant() -> None:
    error = wrong("--worker_nun=4", "train.py")
    assert error.what == "unknown option --worker_nun"
    assert error.hint == "did you mean --worker_num?  (e.g. --worker_num=4)"


def test_an_option_like_nothing_we_know_points_at_the_help_and_at_the_script() -> None:
    assert "come after SCRIPT" in wrong("--zzz", "train.py").hint


def test_a_forgotten_value_and_a_needless_one_are_told_apart() -> None:
    assert "requires an argument" in wrong("--worker_num").because
    assert "does not take a value" in wrong("--standalone=1", "train.py").because


def test_a_wrong_option_of_another_verb_is_told_in_three_lines_too() -> None:
    group = program()

    @group.command("status")
    @click.option("--json", is_flag=True)
    def status(json: bool) -> None:
        raise AssertionError(json)

    with pytest.raises(UsageError) as caught:
        group.main(["status", "--jsn"], "faultrun", standalone_mode=False)
    assert caught.value.because == "`faultrun status` does not have it"
    assert caught.value.hint == "did you mean --json?"


def test_completion_offers_verbs_and_options() -> None:
    group = program()
    ctx = group.make_context("faultrun", [], resilient_parsing=True)
    assert {"run"} <= {item.value for item in group.shell_complete(ctx, "r")}
    assert "--worker_num" in {item.value for item in group.shell_complete(ctx, "--worker")}


def test_reading_a_command_line_imports_nothing_heavy() -> None:
    heavy = {"yaml", "psutil", "filelock", "asyncio", "multiprocessing", "ssl", "numpy", "torch"}
    code = (
        "import sys\n"
        "import faultrun.cli.options.command, faultrun.cli.options.settings, faultrun.cli.resolve.spec\n"
        f"print(*sorted(set(sys.modules) & {heavy!r}))"
    )
    assert printed(code).split() == []
