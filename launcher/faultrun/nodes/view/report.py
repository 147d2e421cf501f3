"""The report of a run of several nodes from what they agreed on, where no node's journal can be read.

It says what it lacks: steps, time and cost are in the journals alone.
"""

from collections.abc import Mapping
from typing import Any

from faultrun.model.printable import printable
from faultrun.nodes.view.status import NodesStatus
from faultrun.nodes.view.status import document as status_document
from faultrun.nodes.view.words import COLUMNS_OF_NODES, cells_of, facts, title, where_files_are
from faultrun.observe.card.card import render
from faultrun.observe.report.pages import cell, templates
from faultrun.observe.report.words import state

_LACKS = (
    "Where the time went, steps, checkpoints, logs and earlier incidents are in the nodes' journals alone"
)


def document_of_nodes(status: NodesStatus) -> dict[str, Any]:
    """What ``report --rdzv-endpoint --json`` prints: the status, the newest card, and where the rest is."""
    return {
        **status_document(status),
        "card": [] if status.card is None else render(status.card).split("\n"),
        "folders": [*where_files_are(status)] or ["no node had a rank yet"],
        "lacks": _LACKS,
    }


def html_of_nodes(status: NodesStatus) -> str:
    """The page: one file, which fetches and runs nothing."""
    return templates().get_template("nodes.html").render(report=_page(status))


def markdown_of_nodes(status: NodesStatus) -> str:
    """The same for a terminal, an issue or a chat."""
    return printable(templates().get_template("nodes.md").render(report=_page(status), cell=cell))


def _page(status: NodesStatus) -> Mapping[str, Any]:
    data = document_of_nodes(status)
    return {
        **data,
        "state": state(data),
        "title": title(status),
        "facts": [*facts(status)],
        "columns": COLUMNS_OF_NODES,
        "nodes": [cells_of(one) for one in status.nodes],
    }
