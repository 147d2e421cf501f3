"""The documentation: faultrun understands every command in it, and every link leads somewhere."""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml
from docs.options_page import WORKER_VARIABLES

from faultrun.cli.app import program
from faultrun.cli.verbs import VERBS
from faultrun.errors import FaultrunError
from support.places import ROOT
from support.reporting.pages import PAGES, behind_faultrun, blocks, commands, links


def understand(words: list[str]) -> None:
    """Parse as the program would, down to the verb's own options; nothing is done."""
    group: click.Command = program()
    ctx = group.make_context("faultrun", list(words))
    while isinstance(ctx.command, click.Group):
        name, command, rest = ctx.command.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        assert command is not None
        ctx = command.make_context(name, rest, parent=ctx)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_is_understood_and_every_link_leads_somewhere(path: Path) -> None:
    for words in map(behind_faultrun, commands(path)):
        shown = shlex.join(words)
        if "ALLCAPS" in shown or re.search(r"\b(NAME|DIR|FILE|JOB\.yaml|VERB|N)\b", shown) or "…" in shown:
            continue
        if len(words) == 1 and words[0] in (*VERBS, "run"):
            continue
        try:
            understand(words)
        except click.exceptions.Exit as end:
            assert end.exit_code == 0, shown
        except (click.ClickException, FaultrunError) as error:
            raise AssertionError(f"{path.name}: faultrun {shown}: {error}") from error
    for link in links(path):
        assert (path.parent / link).exists(), f"{path.name}: {link}"
    for text in blocks(path, "yaml"):
        yaml.safe_load(text)


def test_the_pages_hold_commands_at_all() -> None:
    assert sum(len(commands(path)) for path in PAGES) > 60


def test_the_variables_of_a_worker_are_explained() -> None:
    golden = (ROOT / "tests" / "golden" / "environment.txt").read_text()
    names = {line.partition("=")[0] for line in golden.splitlines() if "=" in line}
    assert names
    assert names <= set(WORKER_VARIABLES)


def test_the_tests_that_the_table_of_verdicts_names_exist() -> None:
    design = (ROOT / "launcher" / "DESIGN.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", design.partition("## Verdicts")[2].partition("\n## ")[0]))
    written = {name for file in (ROOT / "tests").rglob("test_*.py") for name in _functions(file)}
    assert named
    assert named <= written


def _functions(file: Path) -> list[str]:
    return re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
