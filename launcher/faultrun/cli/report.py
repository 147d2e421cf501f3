"""``faultrun report``: what a run cost, from its journal alone, while it runs or long after it ended."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click

from faultrun.cli.console import answer, say
from faultrun.cli.nodes.run_in_etcd import RunLook, or_in_etcd, reachable
from faultrun.cli.options.assume_option import assume_option, assumed
from faultrun.cli.verbs import example, log_dir_option
from faultrun.core.humanize import several, span
from faultrun.errors import LogDirError
from faultrun.files import replace_whole
from faultrun.journal.append import FILE_NAME
from faultrun.journal.lines import decoded
from faultrun.journal.logdir import beside, read_record, which_log_dir
from faultrun.model.topology import NodeId, node_folder
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.account.records import Account
from faultrun.observe.account.savings_words import assumptions_of
from faultrun.observe.account.whole_run import whole_run
from faultrun.observe.report.document import document
from faultrun.observe.report.pages import document_of_nodes, html, html_of_nodes, markdown, markdown_of_nodes
from faultrun.observe.report.words import goodput, twice
from faultrun.observe.status.snapshot import account_now
from faultrun.observe.status.words import where_files_are

HTML, MARKDOWN, JSON = "report.html", "report.md", "report.json"
_LONG_BYTES, _CHUNK_BYTES = 50_000_000, 2_000_000


_BESIDE = ("html_file", "as_json", "as_markdown", "quiet", "assume")


def _of_nodes(look: RunLook, typed: Mapping[str, Any]) -> int:
    """In full where a node's folder can be read from here; else what etcd knows, which says what it lacks."""
    status = look()
    if folders := reachable(status):
        return _in_full(folders, [node_folder(NodeId(one.node)) for one in status.members], **typed)
    places = "; ".join(where_files_are(status)) or "none had ranks yet"
    if typed["assume"]:
        because = "it needs a node's journal, and none can be read from here"
        hint = f"faultrun report --log_dir=DIR on a node: {places}"
        raise LogDirError(f"--assume says nothing of run {status.run_id} here", because=because, hint=hint)
    if typed["as_json"]:
        answer(json.dumps(document_of_nodes(status), indent=2))
        return 0
    if typed["as_markdown"]:
        answer(markdown_of_nodes(status).rstrip("\n"))
        return 0
    page = Path(typed["html_file"] or f"report-{status.run_id}.html")
    _write_page(page, html_of_nodes(status))
    if not typed["quiet"]:
        answer(f"{page}  (what etcd knows; a node's log_dir has the rest)")
    return 0


def _write_page(page: Path, text: str) -> None:
    try:
        replace_whole(page, text.encode(errors="backslashreplace"))
    except OSError as error:
        because = str(error.strerror or error)
        hint = "--html=FILE, or faultrun report --markdown, which prints it"
        raise LogDirError(f"the report cannot be written to {page}", because=because, hint=hint) from error


@click.command(
    epilog=example(
        "faultrun report",
        "faultrun report --markdown --log_dir=faultrun_log",
        "faultrun report --rdzv-endpoint=e0:2379 --rdzv-id=job42",
    )
)
@log_dir_option("The run's log_dir, or one under runs/; also FAULTRUN_LOG_DIR.")
@click.option(
    "--html", "html_file", metavar="FILE", help="Where the page goes.  [report.html in the log_dir]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON and write nothing.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print it as Markdown and write nothing.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
@assume_option()
@or_in_etcd(_of_nodes, *_BESIDE)
def report(log_dir: str, **typed: Any) -> int:
    """Write report.html, report.md and report.json: where the run's time went, and what would lose less."""
    folder = Path(log_dir)
    return _in_full([folder, *beside(folder)], [], **typed)


def _in_full(
    folders: Sequence[Path],
    nodes: Sequence[str],
    *,
    html_file: str | None,
    as_json: bool,
    as_markdown: bool,
    quiet: bool,
    assume: str | None,
) -> int:
    """From every journal in ``folders``; of ``nodes`` and of the plan's those that have none are named."""
    folder, read = folders[0], [_read(one) for one in folders]
    account, record = whole_run([one for one, _ in read]), read_record(folder)
    every = {*nodes, *(node_folder(node) for _, known in read for node in known if len(known) > 1)}
    own = {node_folder(NodeId(str(read_record(one).get("node")))) for one in folders}
    missing = sorted(every - own)
    several_nodes = len(folders) > 1 or bool(missing)
    if several_nodes and not quiet:
        lacks = f"; those of {', '.join(missing)} cannot be read from here" if missing else ""
        say(f"from the journals in {', '.join(str(one) for one in folders)}{lacks}")
    data = document(account, record, assumed(assumptions_of(record), assume))
    data |= {"missing_nodes": missing} if several_nodes else {}
    if as_json:
        answer(json.dumps(data, indent=2))
        return 0
    if as_markdown:
        answer(markdown(data).rstrip("\n"))
        return 0
    page = Path(html_file) if html_file else folder / HTML
    write(folder, data, page, html(data))
    if not quiet:
        answer(summary(data))
        if data["savings"]["text"]:
            answer(data["savings"]["text"])
        answer(f"{page}  (and {MARKDOWN}, {JSON} in {folder})")
    return 0


def account_of(folder: Path) -> Account:
    """Read the whole journal of ``folder``, in one pass, and how far a run that goes on is by now.

    LogDirError when there is no journal.
    """
    return _read(folder)[0]


def _read(folder: Path) -> tuple[Account, tuple[NodeId, ...]]:
    """The account, and the nodes of the newest plan."""
    accountant = Accountant()
    try:
        with (folder / FILE_NAME).open("rb") as file:
            for line in decoded(_with_bar(file)):
                accountant.take(line)
    except OSError as error:
        because = f"{folder / FILE_NAME}: {error.strerror}"
        hint = which_log_dir(folder)
        raise LogDirError(f"no run can be read in {folder}", because=because, hint=hint) from error
    plan = accountant.view.plan
    nodes = tuple(seat.node for seat in plan.topology.nodes) if plan is not None else ()
    return account_now(accountant, folder, read_record(folder)), nodes


def write(folder: Path, data: Mapping[str, Any], page: Path, text: str) -> None:
    """Write the three forms, each whole or not at all. LogDirError when a folder cannot be written."""
    try:
        forms = {
            folder / JSON: json.dumps(data, indent=1) + "\n",
            folder / MARKDOWN: markdown(data),
            page: text,
        }
        for path, form in forms.items():
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
    if (size := os.fstat(file.fileno()).st_size) < _LONG_BYTES:
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
