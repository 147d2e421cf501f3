"""The documentation: faultrun understands every command in it, and every link leads somewhere."""

import ast
import io
import json
import re
import shlex
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from docs.options_page import WORKER_VARIABLES, page

from faultrun.cli.app import program
from faultrun.cli.verbs import VERBS
from faultrun.errors import FaultrunError
from support.machine.processes import PATIENCE_S
from support.machine.receiver import receiving
from support.places import DOCS, ROOT
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
    texts = (file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    written = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert named
    assert named <= written


PAGE = DOCS / "options.md"


def test_the_page_of_options_is_made_from_the_code() -> None:
    again = "python docs/options_page.py > docs/options.md"
    assert PAGE.read_text() == page(), f"write it anew: {again}"


INCIDENT = {
    "kind": "incident",
    "at_utc": "2026-11-28T07:00:00.250Z",
    "incarnation": 0,
    "number": 1,
    "step": 12,
}
RESTART = {
    "kind": "restart", "at_utc": "2026-11-28T07:00:06.750Z", "incarnation": 1, "resumed_step": 10,
    "after_s": 6.5, "running_after_s": None,
}  # fmt: skip


def told(script: str, to: str, *events: dict[str, Any]) -> None:
    for event in events:
        subprocess.run(
            (sys.executable, "-c", script, to),
            input=json.dumps(event).encode(), timeout=PATIENCE_S, check=True,
        )  # fmt: skip


def script(word: str) -> str:
    (found,) = [text for text in blocks(ROOT / "docs" / "metrics.md", "python") if word in text]
    return found


def test_a_recovery_is_a_span_of_its_length_for_an_opentelemetry_collector() -> None:
    with receiving() as receiver:
        told(script("resourceSpans"), receiver.address, INCIDENT, RESTART)
        (body,) = receiver.sent_to("/v1/traces")
    ((span,),) = (scope["spans"] for one in json.loads(body)["resourceSpans"] for scope in one["scopeSpans"])
    assert span["name"] == "recovery"
    assert int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) == pytest.approx(6.5e9, abs=1e6)
    assert {"key": "faultrun.resumed_step", "value": {"stringValue": "10"}} in span["attributes"]


def test_incidents_and_recoveries_are_scalars_of_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    told(script("tensorboard"), str(tmp_path), INCIDENT, RESTART)
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for name in (b"faultrun/incidents", b"faultrun/recovery_seconds", b"faultrun/incarnation"):
        assert name in written


RIDDLES = (
    *("; ... says it", "nothing says that another start would end otherwise", "first failure; rank"),
    *("from the beginning: no checkpoint", "a recovery point shall be written"),
    *("DIR of the run, as it printed", "no rank reported a save", "starts count as training"),
    *("most of a recovery is", "as a known training code needs them", "first bytes back", "Put together."),
    *("neighbour of the narrator", "whoever looks at a run", "no hand-over", "begin as at first"),
    *("Whoever ", " whoever ", "a stranger", "who is there", "said aloud"),
    *("nobody is replaced", "is no --checkpoint_dir:", "before given back for"),
    *("the command is another one", "workers start as they did first", "nobody said how far training was"),
    *("as torchrun has it", "it is of a larger world than", "Who knows how long the slowest honest pause"),
)


@pytest.mark.parametrize("phrase", RIDDLES)
def test_a_phrase_that_nobody_understood_is_gone(phrase: str) -> None:
    folders = (ROOT / "launcher", ROOT / "docs", ROOT / "templates", ROOT / "examples")
    files = [file for folder in folders for kind in ("*.py", "*.md", "*.yaml") for file in folder.rglob(kind)]
    assert len(files) > 200
    texts = {
        file: " ".join(file.read_text(encoding="utf-8").split()) for file in [*files, ROOT / "README.md"]
    }
    assert [str(file) for file, text in texts.items() if phrase in text] == []


def test_a_docstring_is_understood_without_the_one_before_it() -> None:
    leans, found = re.compile(r"(The same|Of|As|Whose|See|Again)\b"), []
    for file in (ROOT / "launcher" / "faultrun").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())) if file.parent.name != "table" else ():
            match node:  # an option's text is its help, and read below the option before it
                case ast.Expr(value=ast.Constant(value=str(text))) if leans.match(text):
                    found.append(f"{file}:{node.lineno}")
    assert found == []


def test_a_docstring_or_comment_names_a_rank_a_process_or_a_user() -> None:
    persons, found = re.compile(r"\b([Ss]ome|[Nn]o|[Aa]ny|[Ee]very)body\b"), []
    for file in (ROOT / "launcher" / "faultrun").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        comments = tokenize.generate_tokens(io.StringIO(text).readline)
        said = [(one.start[0], one.string) for one in comments if one.type == tokenize.COMMENT]
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Expr(value=ast.Constant(value=str(words))):
                    said.append((node.lineno, words))
        found += [f"{file}:{line}" for line, words in said if persons.search(words)]
    assert found == []
