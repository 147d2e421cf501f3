"""Misspelt verbs, commands, options and values: the word that was probably meant is named."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from faultrun.cli import app
from faultrun.cli.verbs import VERBS, verb_command
from faultrun.errors import FaultrunError
from support.asking import plan, refusal


def refused(*words: str) -> FaultrunError:
    with pytest.raises(FaultrunError) as caught:
        app.program().main(list(words), "faultrun", standalone_mode=False)
    assert len(str(caught.value).splitlines()) == 3
    return caught.value


def leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for below, one in command.commands.items():
        yield from leaves(f"{name} {below}", one)


LEAVES = [leaf for name in VERBS for leaf in leaves(name, verb_command(name))]
OPTIONS = [
    pytest.param(words, option, id=f"{words} {spelled}")
    for words, command in LEAVES
    for option in command.params
    if isinstance(option, click.Option)
    for spelled in option.opts
    if spelled.startswith("--")
]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("ckpt lst d", "faultrun ckpt list"),
        ("config sett a b", "faultrun config set"),
        ("recipes shw x", "faultrun recipes show"),
        ("docs gettingstarted", "faultrun docs getting-started"),
        ("render vcjb", "faultrun render vcjob"),
        ("recipes show mindspore-lent", "--recipe=mindspore-lenet"),
        ("incident --logdir=x", "did you mean --log_dir?"),
        ("incident --log-dri=x", "did you mean --log_dir?"),
        ("status --jsn", "did you mean --json?"),
        ("ckpt list --depth=cheksum d", "--depth=checksum"),
        ("status --json=3", "faultrun status --help"),
        ("status --interval=often", "faultrun status --help"),
        ("ckpt", "faultrun ckpt --help"),
        ("ckpt --dpth list", "faultrun ckpt --help"),
    ],
)
def test_the_word_that_was_meant_is_what_to_try(words: str, hint: str) -> None:
    assert refused(*words.split()).hint == hint


def test_a_value_that_is_none_of_the_known_names_option_and_value() -> None:
    error = refused("ckpt", "list", "--depth=cheksum", "d")
    assert error.what == "--depth=cheksum cannot be used"
    assert error.because.endswith("'checksum'; did you mean checksum?")
    assert refused("status", "--interval=x").because == "'x' is not a number"


def test_a_missing_argument_is_named() -> None:
    assert refused("ckpt", "list").because == "missing argument 'DIR...'"


def test_a_folder_that_is_nearly_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    hint = refused("ckpt", "list", f"{tmp_path}/chekpoints").hint
    assert hint == f"did you mean {tmp_path}/checkpoints?"


def test_a_log_dir_that_is_not_there_is_told_from_one_without_incidents(tmp_path: Path) -> None:
    assert refused("incident", f"--log_dir={tmp_path}/x").because == "there is no such folder"
    assert refused("incident", f"--log_dir={tmp_path}").because == "nothing failed there yet"


def test_a_group_without_a_command_names_its_commands() -> None:
    error = refused("ckpt")
    assert (error.what, error.because) == (
        "`faultrun ckpt` needs a command",
        "its commands are list, verify, choose",
    )


def test_an_option_of_a_run_below_another_verb_is_said_to_be_one() -> None:
    assert refused("recipes", "--worker_num=4").because == (
        "it is an option of a run; `faultrun recipes` does not have it"
    )


@pytest.mark.parametrize(("words", "option"), OPTIONS)
def test_every_verbs_options_are_taken_with_underscores_and_dashes(words: str, option: click.Option) -> None:
    name = max(option.opts, key=len).lstrip("-")
    for spelled in {name.replace("-", "_"), name.replace("_", "-")}:
        value = [] if option.is_flag else ["1"]
        if isinstance(option.type, click.Choice):
            value = [option.type.choices[0]]
        typed = [*words.split(), f"--{spelled}", *value, "--help"]  # the help page: it was understood so far
        assert app.program().main(typed, "faultrun", standalone_mode=False) == 0


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--standby=atuo", "auto"),
        ("--hang_timeout=of", "off"),
        ("--hang_limits=chekpoint=3m", "checkpoint"),
        ("--signals=TRM=save", "TERM"),
        ("--signals=TERM=sav", "save"),
        ("--numa-binding=sockets", "socket"),
        ("--framework=troch", "torch"),
        ("--nproc-per-node=gpus", "gpu"),
        ("--restore_configs=ends", "end"),
    ],
)
def test_a_word_that_is_nearly_a_choice_is_answered_with_it(script: str, typed: str, meant: str) -> None:
    assert refusal(typed, script).because.endswith(f"; did you mean {meant}?")


def test_a_verb_is_taken_with_underscores_too() -> None:
    assert app.program().main(["checkpoint_now", "--help"], "faultrun", standalone_mode=False) == 0


ARGPARSE = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\n"


@pytest.mark.parametrize(
    ("source", "behind", "pointed_out"),
    [
        (ARGPARSE + "args = parser.parse_args()\n", "--checkpoint_dir=ckpt", True),
        (ARGPARSE + "args = vars(parser.parse_args())\n", "--max-restarts=5", True),
        (
            ARGPARSE + "parser.add_argument('--checkpoint-dir')\nparser.parse_args()\n",
            "--checkpoint_dir=c",
            False,
        ),
        (ARGPARSE + "args, rest = parser.parse_known_args()\n", "--checkpoint_dir=ckpt", False),
        (ARGPARSE + "add_more(parser)\nargs = parser.parse_args()\n", "--log_dir=x", False),
        ("import sys\nprint(sys.argv)\n", "--log_dir=x", False),
        ("import torch\n", "--recipe=dcp", False),
        ("import torch\n", "--worker_num=4", True),
        ("print('--worker_num')\n", "--worker_num=4", False),
    ],
)
def test_an_option_behind_the_script_is_pointed_out_unless_the_script_may_have_it(
    script: str, source: str, behind: str, pointed_out: bool
) -> None:
    Path(script).write_text(source)
    ours = "--grace=1s" if behind.startswith("--worker_num") else "--worker_num=1"
    notes = plan("--framework=torch", ours, script, behind).notes
    said = f"{behind} is handed to {script}; faultrun's options go before it: faultrun {behind} {script}"
    assert (said in notes) == pointed_out
