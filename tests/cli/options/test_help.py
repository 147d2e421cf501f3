"""The help pages: the short one, the one with everything, and those of the verbs."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from faultrun.cli import app
from faultrun.cli.options.command import EXAMPLE, FaultrunGroup, everyday_rows, everything
from faultrun.cli.options.option import Takes
from faultrun.cli.options.settings import OPTIONS
from faultrun.cli.verbs import VERBS, verb_command
from support.asking import ask, program
from support.places import GOLDEN


def page(*words: str, whole: bool = False, group: FaultrunGroup | None = None, width: int = 100) -> str:
    group = group or program()
    ctx = group.make_context("faultrun", [], resilient_parsing=True, terminal_width=width)
    command = group.run if words else group
    if words:
        ctx = group.run.make_context("run", [], parent=ctx, resilient_parsing=True, terminal_width=width)
    return f"{everything(command, ctx) if whole else ctx.get_help()}\n"


def verbs() -> Iterator[tuple[str, click.Command]]:
    """Every verb, and every command below one, by its words."""
    for name in VERBS:
        command = verb_command(name)
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", one) for below, one in command.commands.items())


def test_the_short_help_is_the_agreed_one() -> None:
    assert page(width=78) == (GOLDEN / "help.txt").read_text()


def test_the_whole_help_is_the_agreed_one_and_that_of_run_has_all_but_the_verbs() -> None:
    agreed = (GOLDEN / "help_all.txt").read_text()
    assert page(whole=True) == agreed
    without_verbs = re.sub(r"\nVerbs.*?\n\n", "\n", agreed, count=1, flags=re.DOTALL)
    assert page("run", whole=True) == without_verbs.replace("faultrun [OPTIONS]", "faultrun run [OPTIONS]", 1)


def test_the_help_page_fits_100_columns() -> None:
    assert max(len(line) for line in page(whole=True).splitlines()) <= 100


def test_the_short_help_gives_each_verb_and_each_everyday_option_one_line_of_80_columns() -> None:
    lines = page(group=app.program(), width=78).splitlines()
    assert max(map(len, lines)) <= 78
    assert len(lines) <= 50
    for name in VERBS:
        (line,) = (one for one in lines if re.match(rf"  {name}  +\S", one))
        assert line.endswith("."), f"the sentence of {name} is longer than a line"
    for term, says in everyday_rows():
        assert any(one.startswith(f"  {term} ") and one.endswith(says) for one in lines), term
    assert 10 <= len(everyday_rows()) <= 15


def test_the_example_of_the_short_help_is_understood(tmp_path: Path) -> None:
    first, *words = shlex.split("".join(line.removesuffix("\\") for line in EXAMPLE))
    asked = ask(*words)
    assert first == "faultrun"
    assert asked.words == ("train.py",)
    assert asked.options["resume_arg"] == ("--resume={checkpoint}",)


def test_every_option_is_on_the_help_page_with_a_sentence() -> None:
    text = page(whole=True)
    for option in OPTIONS.values():
        assert f"{option.spelled} " in text or f"{option.spelled}\n" in text
        assert option.help.endswith((".", ".json FILE is msrun's bind file."))
        assert (option.takes is Takes.NOTHING) == (option.metavar == "")


@pytest.mark.parametrize(("words", "command"), [pytest.param(*one, id=one[0]) for one in verbs()])
def test_every_verb_has_an_example_that_is_understood(words: str, command: click.Command) -> None:
    """Give the verb ``epilog=example("faultrun VERB ...")``."""
    epilog = command.epilog or ""
    assert epilog.startswith("\b\nExample"), f"the help of `faultrun {words}` has no example"
    for line in epilog.splitlines()[2:]:
        first, *rest = shlex.split(re.split(r" [|>] ", line)[0])
        assert first == "faultrun"
        assert rest[: len(words.split())] == words.split() or isinstance(command, click.Group)
        understood(rest)


def understood(words: list[str]) -> None:
    ctx = app.program().make_context("faultrun", words)
    while isinstance(ctx.command, click.Group) and (rest := [*ctx._protected_args, *ctx.args]):
        name, command, rest = ctx.command.resolve_command(ctx, rest)
        assert command is not None
        ctx = command.make_context(name, rest, parent=ctx)


def test_the_version_is_printed_and_nothing_else_happens(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--version"], ["run", "--version"]):
        assert program().main(words, "faultrun", standalone_mode=False) == 0
        assert capsys.readouterr().out == "faultrun 9.9\n"


def test_the_help_page_is_printed_by_either_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["-h"], ["--worker_num=4", "--help"], ["--help-all"], ["--help_all"]):
        assert program().main(words, "faultrun", standalone_mode=False) == 0
        printed = capsys.readouterr().out
        assert "SCRIPT [SCRIPT_ARGS...]" in printed
        assert ("--cluster_time_out" in printed) == (words[0] in ("--help-all", "--help_all"))
