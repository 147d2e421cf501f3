"""``faultrun report``: what a run cost, from its journal alone, while it runs or long after it ended."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import click

from faultrun.cli.console import answer, say
from faultrun.cli.verbs import log_dir_option
from faultrun.core.span import several, span
from faultrun.errors import LogDirError
from faultrun.files import replace_whole
from faultrun.journal.append import FILE_NAME
from faultrun.journal.lines import decoded
from faultrun.journal.logdir import read_record
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.account.records import Account
from faultrun.observe.report.document import document
from faultrun.observe.report.pages import NO_PLOTLY, goodput, html, markdown, plotly_js, twice

HTML, MARKDOWN, JSON = "report.html", "report.md", "report.json"
_LONG_BYTES = 50_000_000
_CHUNK_BYTES = 2_000_000


@click.command()
@log_dir_option("The run's log_dir, or one under runs/; also FAULTRUN_LOG_DIR.")
@click.option(
    "--html", "html_file", metavar="FILE", help="Where the page goes.  [report.html in the log_dir]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON and write nothing.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print it as Markdown and write nothing.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
def report(log_dir: str, html_file: str | None, as_json: bool, as_markdown: bool, quiet: bool) -> int:
    """Write report.html, report.md and report.json: where the run's time went, and what would lose less."""
    folder = Path(log_dir)
    account = account_of(folder)
    data = document(account, read_record(folder))
    if as_json:
        answer(json.dumps(data, indent=2))
        return 0
    if as_markdown:
        answer(markdown(data).rstrip("\n"))
        return 0
    page = Path(html_file) if html_file else folder / HTML
    write(folder, page, data, account)
    if not quiet:
        if not plotly_js():
            say(NO_PLOTLY)
        answer(summary(data))
        answer(f"{page}  (and {MARKDOWN}, {JSON} in {folder})")
    return 0


def account_of(folder: Path) -> Account:
    """Read the whole journal of ``folder``, in one pass. LogDirError when there is none."""
    accountant = Accountant()
    try:
        with (folder / FILE_NAME).open("rb") as file:
            for line in decoded(_with_bar(file)):
                accountant.take(line)
    except OSError as error:
        raise LogDirError(
            f"no run can be read in {folder}",
            because=f"{folder / FILE_NAME}: {error.strerror}",
            hint="--log_dir=DIR, the log directory printed at the start",
        ) from error
    return accountant.account()


def write(folder: Path, page: Path, data: Mapping[str, Any], account: Account) -> None:
    """Write the three forms, each whole or not at all. LogDirError when a folder cannot be written."""
    try:
        text = {folder / JSON: json.dumps(data, indent=1) + "\n", folder / MARKDOWN: markdown(data)}
        for path, form in {**text, page: html(data, account)}.items():
            replace_whole(path, form.encode(errors="backslashreplace"))
    except OSError as error:
        raise LogDirError(
            f"the report cannot be written to {error.filename or folder}",
            because=str(error.strerror or error),
            hint="faultrun report --markdown prints it instead",
        ) from error


def summary(data: Mapping[str, Any]) -> str:
    """The run in one line."""
    return (
        f"ran {span(data['wall_s'])}; {goodput(data)}; "
        f"{several(data['incidents_total'], 'incident')}, {several(data['restarts'], 'restart')}, "
        f"{twice(data)}"
    )


def _with_bar(file: BinaryIO) -> Iterator[bytes]:
    """The journal's lines; a long journal shows how far it has been read."""
    size = os.fstat(file.fileno()).st_size
    if size < _LONG_BYTES:
        yield from file
        return
    unshown = 0
    with click.progressbar(length=size, label="reading the journal", file=sys.stderr) as bar:
        for raw in file:
            unshown += len(raw)
            if unshown > _CHUNK_BYTES:
                bar.update(unshown)
                unshown = 0
            yield raw
        bar.update(unshown)
