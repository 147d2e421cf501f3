"""``report.html`` and ``report.md``: the report for people, as two templates and the words that both use.

The page needs no network and no server: plotly.js draws the figures and is put into it as it is installed;
without it the page has all its numbers, tables and the bar of losses, and says how to get the rest.
"""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from faultrun.core.span import percent, several, span
from faultrun.model.printable import printable
from faultrun.model.recovery import PARTS
from faultrun.observe.account.records import Account
from faultrun.observe.report.charts import COLOURS, figures

NO_PLOTLY = "figures need plotly: pip install 'faultrun[report]', then: faultrun report"
SPENDING_WORDS: Mapping[str, str] = {
    "training": "steps that count",
    "recompute": "steps trained again after a restart",
    "detect": "stuck before it was noticed",
    "drain": "saving, stopping, sweeping",
    "choose": "reading checkpoints, agreeing on one",
    "backoff": "waiting before a restart",
    "spawn": "rewriting configurations, starting processes",
    "start": "workers up, before their first step",
    "unreported": "workers up; the script reports no steps, so nobody knows what of it was training",
    "idle": "kept back by the platform",
    "away": "no supervisor",
}
_PLACES = {
    "timeline": ("Timeline", "wide", "drag to zoom, double-click to see all; triangles are incidents"),
    "recoveries": ("Recoveries, part by part", "wide", "colours as above"),
    "causes": ("What ended the first rank", "", ""),
    "ranks": ("Which rank failed first", "", ""),
}
_COSTLIEST, _NEWEST = 50, 20
_MOST_LIVES = 100
_BAR = 30


def html(report: Mapping[str, Any], account: Account) -> str:
    """The whole page. Neither markup nor a control character comes out of what a worker said."""
    library = plotly_js()
    drawn = figures(account) if library else {}
    ended = report["ended"]
    badge = (
        "open"
        if ended is None or ended["exit_code"] in (130, 143)
        else "bad"
        if ended["exit_code"]
        else "good"
    )
    return _filled(
        "page.html",
        report,
        badge=badge,
        colours={kind.value: colour for kind, colour in COLOURS.items()},
        places=_PLACES,
        most_lives=_MOST_LIVES,
        NO_PLOTLY=NO_PLOTLY,
        drawn=drawn,
        library=Markup(library),
        data=Markup(json.dumps(drawn, separators=(",", ":")).replace("<", "\\u003c")),
    )


def markdown(report: Mapping[str, Any]) -> str:
    """``report.md``, for a terminal, an issue or a chat."""
    timelines = [row["timeline"] for row in shown_incidents(report["incidents"])[0]]
    parts = [name for name in PARTS if any(name in timeline for timeline in timelines)]
    return printable(_filled("page.md", report, parts=parts, bar=_bar, cell=_cell, code=_code))


def _filled(template: str, report: Mapping[str, Any], **more: Any) -> str:
    rows, note = shown_incidents(report["incidents"])
    words = (
        span, percent, several, goodput, outcome, recovery, slowest, steps, then, twice, who
    )  # fmt: skip
    return (
        _templates()
        .get_template(template)
        .render(
            report=report,
            wall_s=report["wall_s"] or 1.0,
            used=[(name, seconds) for name, seconds in report["spent"].items() if seconds > 0],
            rows=rows,
            note=note,
            SPENDING_WORDS=SPENDING_WORDS,
            **{word.__name__: word for word in words},
            **more,
        )
    )


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("faultrun.observe", "report"),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def plotly_js() -> str:
    """plotly.js as the installed package brings it; empty without the package. It is not imported."""
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        file = Path(folder) / "package_data" / "plotly.min.js"
        if file.is_file():
            return file.read_text(encoding="utf-8").replace("</script", "<\\/script")
    return ""


def _bar(share: float) -> int:
    return max(1, round(share * _BAR))


def _cell(text: object) -> str:
    """One line that cannot end a table cell or begin a tag."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def _code(text: object) -> str:
    return " ".join(str(text).split()).replace("`", "'")


def shown_incidents(incidents: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], str]:
    """All of a few; of many the costliest and the newest, and a sentence that says so."""
    if len(incidents) <= _COSTLIEST + _NEWEST:
        return list(incidents), ""
    by_cost = sorted(range(len(incidents)), key=lambda at: -_cost(incidents[at]))[:_COSTLIEST]
    chosen = sorted({*by_cost, *range(len(incidents) - _NEWEST, len(incidents))})
    note = f"The {_COSTLIEST} costliest and the {_NEWEST} newest of {len(incidents):,}; report.json has all."
    return [incidents[at] for at in chosen], note


def who(incident: Mapping[str, Any]) -> str:
    """``rank 3``, or whatever is to blame when no rank is."""
    return f"rank {incident['rank']}" if incident["rank"] is not None else str(incident["cause"])


def slowest(incident: Mapping[str, Any]) -> str:
    """The part of the recovery that took longest, with its time."""
    spent: Mapping[str, float] = incident["spent"]
    if not spent:
        return ""
    name = max(spent, key=lambda kind: spent[kind])
    return f"{name} {span(spent[name])}"


def then(incident: Mapping[str, Any]) -> str:
    """How it ended: where training went on, beside where it should have, as far as that is known."""
    return str(incident.get("resume") or incident["end"])


def steps(incident: Mapping[str, Any]) -> str:
    """``1215 → 1200``: where it stopped and where it went on."""
    if incident["step"] is None:
        return ""
    resumed = incident["resumed_step"]
    return f"{incident['step']:,}" if resumed is None else f"{incident['step']:,} → {resumed:,}"


def outcome(report: Mapping[str, Any]) -> str:
    """How the run stands, in a few words."""
    ended = report["ended"]
    if ended is None:
        return f"not over (last known phase: {report['phase'] or 'none'})"
    return f"exit code {ended['exit_code']}: {str(ended['why']).splitlines()[0] if ended['why'] else ''}"


def goodput(report: Mapping[str, Any]) -> str:
    """``97 % productive``, or why nobody can say."""
    share = report["productive_share"]
    return (
        "goodput unknown (the script reports no steps)" if share is None else f"{percent(share)} productive"
    )


def twice(report: Mapping[str, Any]) -> str:
    """How many steps were trained twice, as far as that is known."""
    lost = report["lost_steps"]
    return "steps trained twice unknown" if lost is None else f"{several(lost, 'step')} trained twice"


def recovery(incident: Mapping[str, Any]) -> str:
    """How long the recovery took; a question mark where nobody reported when training went on."""
    return "?" if incident["recovery_s"] is None else span(incident["recovery_s"])


def _cost(incident: Mapping[str, Any]) -> float:
    return sum(map(float, incident["spent"].values())) + float(incident["recompute_s"])
