"""``report.html``: one file that needs no network and no server.

plotly.js draws the figures and is put into the page as it is installed; without it the page has all its
numbers, tables and the bar of losses, and says how to get the rest.
"""

import html as plain
import importlib.util
import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from faultrun.core.span import percent, several, span
from faultrun.model.printable import printable
from faultrun.observe.account.accountant import Account
from faultrun.observe.account.timeline import Spending
from faultrun.observe.report.charts import COLOURS, figures
from faultrun.observe.report.words import KINDS, outcome, recovery, shown_incidents, slowest, steps, then, who

NO_PLOTLY = "figures need plotly: pip install 'faultrun[report]', then: faultrun report"
_MOST_LIVES = 100


def html(report: Mapping[str, Any], account: Account) -> str:
    """The whole page."""
    library = plotly_js()
    drawn = figures(account) if library else {}
    return _template().substitute(
        title=escape(f"faultrun report: {report['run_id'] or report['command']}"),
        run=escape(report["run_id"] or "run"),
        badge=_badge(report),
        subtitle=escape(f"{report['command']} · {report['workers']} workers · {report['framework']}"),
        times=escape(f"{_minute(report['began_utc'])} to {_minute(report['last_utc'])} UTC"),
        tiles="".join(_tiles(report)),
        losses=_losses(report),
        figures="".join(_places(drawn)) if library else f'<p class="note">{escape(NO_PLOTLY)}</p>',
        advice="".join(_advice(report)),
        incidents=_incidents(report),
        lives=_lives(report),
        version=escape(report["version"]),
        library=f"<script>{library}</script>" if drawn else "",
        data=json.dumps(drawn, separators=(",", ":")).replace("<", "\\u003c"),
    )


def escape(text: str) -> str:
    """Neither markup nor a control character comes out of what a worker said."""
    return plain.escape(printable(text))


@cache
def plotly_js() -> str:
    """plotly.js as the installed package brings it; empty without the package. It is not imported."""
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        file = Path(folder) / "package_data" / "plotly.min.js"
        if file.is_file():
            return file.read_text(encoding="utf-8").replace("</script", "<\\/script")
    return ""


def _template() -> Template:
    return Template((files("faultrun.observe.report") / "page.html").read_text(encoding="utf-8"))


def _badge(report: Mapping[str, Any]) -> str:
    ended = report["ended"]
    kind = "open" if ended is None else "good" if ended["exit_code"] == 0 else "bad"
    if ended is not None and ended["exit_code"] in (130, 143):
        kind = "open"
    return f'<span class="badge {kind}">{escape(outcome(report))}</span>'


def _tiles(report: Mapping[str, Any]) -> Iterator[str]:
    recovered, spent = report["recovery"], report["spent"]
    share = report["productive_share"]
    if share is None:
        yield _tile("unknown", "productive (ETTR)", "the script reports no steps")
    else:
        yield _tile(percent(share), "productive (ETTR)", "time in steps that count, of wall time")
    yield _tile(span(report["wall_s"]), "wall time", f"{span(spent['training'])} of training that counts")
    yield _tile(f"{report['incidents_total']:,}", "incidents", several(report["restarts"], "restart"))
    median = "none" if recovered["median_s"] is None else span(recovered["median_s"])
    worst = "" if recovered["worst_s"] is None else f"worst {span(recovered['worst_s'])}"
    yield _tile(median, "fault to training again", f"median; {worst}" if worst else "none is known")
    lost = "unknown" if report["lost_steps"] is None else f"{report['lost_steps']:,}"
    yield _tile(lost, "steps trained twice", span(spent["recompute"]))
    gasps = report["gasps"]
    if gasps["asked"]:
        took = "" if gasps["took_s"] is None else f"; {span(gasps['took_s'])} each (median)"
        told = f"{several(gasps['saved'], 'rank')} saved{took}"
        yield _tile(f"{gasps['kept']:,} of {gasps['windows']:,}", "grace windows kept all progress", told)
    yield from _standbys(report)


def _standbys(report: Mapping[str, Any]) -> Iterator[str]:
    states = report["standbys"]
    taken, lost = states.get("taken", 0), states.get("lost", 0)
    if taken or lost:
        yield _tile(f"{taken:,}", "restarts from a standby", f"{lost:,} standbys lost")


def _tile(value: str, name: str, more: str) -> str:
    return (
        f'<div class="tile"><div class="value">{escape(value)}</div><div class="name">{escape(name)}</div>'
        f'<div class="more">{escape(more)}</div></div>'
    )


def _losses(report: Mapping[str, Any]) -> str:
    """One bar of the whole run, and below it what each colour is."""
    wall_s = report["wall_s"] or 1.0
    used = [(Spending(name), seconds) for name, seconds in report["spent"].items() if seconds > 0]
    bar = "".join(
        f'<i style="flex-grow:{seconds / wall_s:.6f};background:{COLOURS[kind]}"'
        f' title="{kind.value} {span(seconds)}"></i>'
        for kind, seconds in used
    )
    rows = "".join(
        f'<tr><td><b class="dot" style="background:{COLOURS[kind]}"></b>{kind.value}</td>'
        f"<td class=n>{span(seconds)}</td><td class=n>{percent(seconds / wall_s)}</td>"
        f'<td class="dim whole">{escape(KINDS[kind.value])}</td></tr>'
        for kind, seconds in sorted(used, key=lambda pair: -pair[1])
    )
    return f'<div class="bar">{bar}</div><div class="scroll"><table class="losses rows">{rows}</table></div>'


def _places(drawn: Mapping[str, Any]) -> Iterator[str]:
    titles = {
        "timeline": ("Timeline", "wide", "drag to zoom, double-click to see all; triangles are incidents"),
        "recoveries": ("Recoveries, part by part", "wide", "colours as above"),
        "causes": ("What ended the first rank", "", ""),
        "ranks": ("Which rank failed first", "", ""),
    }
    for name in drawn:
        title, width, note = titles[name]
        dim = f' <small class="dim">{note}</small>' if note else ""
        yield f'<section class="card {width}"><h2>{title}{dim}</h2><div id="{name}"></div></section>'


def _advice(report: Mapping[str, Any]) -> Iterator[str]:
    if not report["advice"]:
        return
    yield '<section class="card wide"><h2>To lose less</h2>'
    for one in report["advice"]:
        yield (
            f'<div class="advice"><b>{escape(one["what"])}</b><div>{escape(one["because"])}</div>'
            f"<code>{escape(one['hint'])}</code></div>"
        )
    yield "</section>"


def _incidents(report: Mapping[str, Any]) -> str:
    if not report["incidents"]:
        return '<section class="card wide"><h2>Incidents</h2><p class="note">none</p></section>'
    rows, note = shown_incidents(report["incidents"])
    head = (
        "<th class=n>#<th class=n>after<th>first to fail<th>what<th>step<th class=n>lost"
        "<th class=n>recovery<th>slowest part<th>then"
    )
    body = "".join(
        f"<tr><td class=n data-is='#'>{row['number']}<td class=n data-is=after>{span(row['at_s'])}"
        f"<td class=nw>{escape(who(row))}<td class=whole>{escape(row['what'])}"
        f"<td class=nw data-is=step>{steps(row)}<td class=n data-is=lost>{_step(row['lost_steps'])}"
        f"<td class=n data-is=recovery>{recovery(row)}"
        f"<td class=nw data-is=slowest>{escape(slowest(row))}<td>{escape(then(row))}</tr>"
        for row in rows
    )
    dim = f'<p class="note">{escape(note)}</p>' if note else ""
    return (
        f'<section class="card wide"><h2>Incidents</h2>{dim}<div class="scroll"><table class="rows">'
        f"<thead><tr>{head}</thead><tbody>{body}</tbody></table></div></section>"
    )


def _lives(report: Mapping[str, Any]) -> str:
    lives = report["incarnations"][-_MOST_LIVES:]
    left_out = len(report["incarnations"]) - len(lives)
    dim = f'<p class="note">the newest {_MOST_LIVES}; report.json has all</p>' if left_out else ""
    body = "".join(
        f"<tr><td class=n data-is='#'>{life['number']}<td class=n data-is=after>{span(life['begin_s'])}"
        f"<td class=n data-is=lasted>{span(life['end_s'] - life['begin_s'])}"
        f"<td class=n data-is='from step'>{_step(life['resumed_step'])}"
        f"<td class=n data-is='to step'>{_step(life['reached_step'])}"
        f"<td>{escape(life['end'])}<td class='path whole'>{escape(life['resumed_from'])}</tr>"
        for life in lives
    )
    head = (
        "<th class=n>#<th class=n>after<th class=n>lasted<th class=n>from step<th class=n>to step"
        "<th>end<th>resumed from"
    )
    title = f"<summary><h2>Incarnations ({len(report['incarnations']):,})</h2></summary>"
    table = f"<table class=rows><thead><tr>{head}</thead><tbody>{body}</tbody></table>"
    return f'<details class="card wide">{title}{dim}<div class="scroll">{table}</div></details>'


def _step(step: int | None) -> str:
    return "" if step is None else f"{step:,}"


def _minute(utc: str) -> str:
    return utc[:19].replace("T", " ")
