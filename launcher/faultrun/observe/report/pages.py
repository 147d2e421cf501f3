"""``report.html`` and ``report.md``: the document for people, as templates and the words that both use.

The page is one file of HTML, CSS and SVG: it fetches nothing, runs nothing, made from the document alone.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from faultrun.core.humanize import percent, several, span
from faultrun.model.observed.recovery import PARTS
from faultrun.model.printable import printable
from faultrun.observe.account.savings_words import assumed, saved_rows, saved_time
from faultrun.observe.card.card import render
from faultrun.observe.report import words
from faultrun.observe.report.drawing import described, timeline
from faultrun.observe.report.sections import sections
from faultrun.observe.report.stages import STAGES
from faultrun.observe.status.status import RunStatus
from faultrun.observe.status.status import document as status_document
from faultrun.observe.status.words import facts, table, title, where_files_are

_LACKS = (
    "Where the time went, steps, checkpoints, logs and earlier incidents are in the nodes' journals alone"
)
_MOST_LIVES, _MOST_CAUSES, _MOST_BARS = 20, 8, 12
_BAR = 30


def html(report: Mapping[str, Any]) -> str:
    """The whole page. Neither markup nor a control character comes out of what a worker said."""
    return _filled("page.html", report, **_of_page(report))


def markdown(report: Mapping[str, Any]) -> str:
    """``report.md``, for a terminal, an issue or a chat."""
    timelines = [row["timeline"] for row in words.shown_incidents(report["incidents"])[0]]
    parts = [name for name in PARTS if any(name in timeline for timeline in timelines)]
    bar = lambda share: max(1, round(share * _BAR))  # noqa: E731
    code = lambda text: " ".join(str(text).split()).replace("`", "'")  # noqa: E731
    return printable(_filled("page.md", report, parts=parts, bar=bar, cell=cell, code=code))


def document_of_nodes(status: RunStatus) -> dict[str, Any]:
    """What ``report --rdzv-endpoint --json`` prints: the status, the newest card, and where the rest is.

    Steps, time and cost are in the nodes' journals alone: it says that it lacks them.
    """
    card = None if status.agreed is None else status.agreed.card
    return {
        **status_document(status),
        "card": [] if card is None else render(card).split("\n"),
        "folders": [*where_files_are(status)] or ["no node had a rank yet"],
        "lacks": _LACKS,
    }


def html_of_nodes(status: RunStatus) -> str:
    """The page of a run of several nodes from what they agreed on, where no node's journal can be read."""
    return templates().get_template("nodes.html").render(**_of_nodes(status))


def markdown_of_nodes(status: RunStatus) -> str:
    """What that page says, for a terminal, an issue or a chat."""
    return printable(templates().get_template("nodes.md").render(**_of_nodes(status), cell=cell))


def _of_nodes(status: RunStatus) -> dict[str, Any]:
    return {
        "report": document_of_nodes(status),
        "state": words.state,
        "outcome": lambda _: title(status),
        "known": [*facts(status)],
        "nodes": table(status, len(status.nodes)),
    }


def _of_page(report: Mapping[str, Any]) -> dict[str, Any]:
    lives, causes = report["incarnations"], report["faults_by_cause"]
    bars = [one for one in words.shown_incidents(report["incidents"], _MOST_BARS)[0] if one["stages"]]
    return {
        "lives": lives[-_MOST_LIVES:],
        "causes": causes[:_MOST_CAUSES],
        "causes_left_out": report["incidents_total"] - sum(one["count"] for one in causes[:_MOST_CAUSES]),
        "bars": bars,
        "longest_s": max((sum(one["stages"].values()) for one in bars), default=0.0) or 1.0,
        "used_stages": [name for name in STAGES if any(one["stages"].get(name) for one in bars)],
        "STAGES": STAGES,
        "picture": timeline(report),
        "described": described(report),
        "extra": list(sections(report)),
        "at": lambda path: _at(report, path),
    }


def _at(report: Mapping[str, Any], path: str) -> object:
    """The value at ``recovery.median_s`` and the like."""
    found: Any = report
    for name in path.split("."):
        found = found[name]
    return found


def _filled(template: str, report: Mapping[str, Any], **more: Any) -> str:
    rows, note = words.shown_incidents(report["incidents"])
    used: list[Callable[..., object]] = [
        span, percent, several, words.clock, words.faults, words.goodput, words.no_recovery,
        words.outcome, words.ranks, words.recovery, words.shown, words.slowest, words.state, words.steps,
        words.then, words.twice, words.unknown, words.unless_advised, words.who, saved_rows, saved_time,
        assumed,
    ]  # fmt: skip
    return (
        templates()
        .get_template(template)
        .render(
            report=report,
            wall_s=report["wall_s"] or 1.0,
            used=[(name, seconds) for name, seconds in report["spent"].items() if seconds > 0],
            rows=rows,
            note=note,
            SPENDING_WORDS=words.SPENDING_WORDS,
            **{word.__name__: word for word in used},
            **more,
        )
    )


@cache
def templates() -> Environment:
    """The templates of this folder; of ``.html`` nothing that a worker said becomes markup."""
    found = Environment(
        loader=PackageLoader("faultrun.observe", "report"),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters["n"] = lambda value: f"{value:.2f}".rstrip("0").rstrip(".")  # less is no pixel
    return found


def cell(text: object) -> str:
    """One line that cannot end a table cell or begin a tag."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")
