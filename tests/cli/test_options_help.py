"""The help page, compared with what a person last agreed to read."""

import re
from pathlib import Path

import pytest

from faultrun.cli.options.option import Takes
from faultrun.cli.options.settings import OPTIONS
from support.asking import program

GOLDEN = Path(__file__).parent.parent / "golden"


def page(*words: str) -> str:
    group = program()
    ctx = group.make_context("faultrun", [], resilient_parsing=True, terminal_width=100)
    if words:
        ctx = group.run.make_context("run", [], parent=ctx, resilient_parsing=True, terminal_width=100)
    return f"{ctx.get_help()}\n"


def test_the_help_page_is_the_agreed_one_and_that_of_run_has_all_but_the_verbs() -> None:
    agreed = (GOLDEN / "help.txt").read_text()
    assert page() == agreed
    without_verbs = re.sub(r"\nVerbs.*?\n\n", "\n", agreed, count=1, flags=re.DOTALL)
    assert page("run") == without_verbs.replace("faultrun [OPTIONS]", "faultrun run [OPTIONS]", 1)


def test_the_help_page_fits_100_columns() -> None:
    assert max(len(line) for line in page().splitlines()) <= 100


def test_every_option_is_on_the_help_page_with_a_sentence() -> None:
    text = page()
    for option in OPTIONS.values():
        assert f"{option.spelled} " in text or f"{option.spelled}\n" in text
        assert option.help.endswith((".", ".json FILE is msrun's bind file."))
        assert (option.takes is Takes.NOTHING) == (option.metavar == "")


def test_the_version_is_printed_and_nothing_else_happens(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--version"], ["run", "--version"]):
        assert program().main(words, "faultrun", standalone_mode=False) == 0
        assert capsys.readouterr().out == "faultrun 9.9\n"


def test_the_help_page_is_printed_by_either_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["-h"], ["--worker_num=4", "--help"]):
        assert program().main(words, "faultrun", standalone_mode=False) == 0
        assert "SCRIPT [SCRIPT_ARGS...]" in capsys.readouterr().out
