"""``report.md``: the report for a terminal, an issue or a chat."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faultrun.core.span import percent, several, span
from faultrun.model.printable import printable
from faultrun.model.recovery import PARTS
from faultrun.observe.report.words import (
    KINDS,
    goodput,
    outcome,
    recovery,
    shown_incidents,
    slowest,
    steps,
    then,
    twice,
    who,
)

_BAR = 30


def markdown(report: Mapping[str, Any]) -> str:
    """The whole page, ending in a newline."""
    return (
        printable("\n".join((*_head(report), *_losses(report), *_advice(report), *_incidents(report)))) + "\n"
    )


def _head(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"# Run {report['run_id']}"
    yield ""
    yield f"`{_code(report['command'])}`, {report['workers']} workers, {report['framework']}; "
    yield f"{report['began_utc']} to {report['last_utc']}; {_cell(outcome(report))}"
    yield ""
    recovered = report["recovery"]
    yield f"* **{goodput(report)}** (ETTR): of {span(report['wall_s'])}, "
    yield f"  {span(report['spent']['training'])} are known to be training that counts"
    incidents = several(report["incidents_total"], "incident")
    yield f"* {incidents}, {several(report['restarts'], 'restart')}, {twice(report)}"
    if recovered["count"]:
        yield (
            f"* training again after {span(recovered['median_s'])} (median), "
            f"{span(recovered['p90_s'])} (p90), {span(recovered['worst_s'])} (worst); "
            f"slowest part: {recovered['slowest_part']}"
        )
    yield ""


def _losses(report: Mapping[str, Any]) -> Iterator[str]:
    wall_s = report["wall_s"]
    yield "## Where the time went"
    yield ""
    yield "| | time | share | | |"
    yield "|---|---:|---:|---|---|"
    for name, seconds in report["spent"].items():
        if seconds > 0:
            share = seconds / wall_s if wall_s else 0.0
            bar = "█" * max(1, round(share * _BAR))
            yield f"| {name} | {span(seconds)} | {percent(share)} | {KINDS.get(name, '')} | {bar} |"
    yield f"| **wall time** | **{span(wall_s)}** | | | |"
    yield ""


def _advice(report: Mapping[str, Any]) -> Iterator[str]:
    if not report["advice"]:
        return
    yield "## To lose less"
    yield ""
    for one in report["advice"]:
        yield f"* **{_cell(one['what'])}**: {_cell(one['because'])}."
        yield f"  Try: {_cell(one['hint'])}"
    yield ""


def _incidents(report: Mapping[str, Any]) -> Iterator[str]:
    if not report["incidents"]:
        return
    rows, note = shown_incidents(report["incidents"])
    yield "## Incidents"
    yield ""
    if note:
        yield note
        yield ""
    yield "| # | after | first to fail | what | step | lost | recovery | slowest part | then |"
    yield "|---:|---:|---|---|---|---:|---:|---|---|"
    for row in rows:
        lost = "" if row["lost_steps"] is None else f"{row['lost_steps']:,}"
        yield (
            f"| {row['number']} | {span(row['at_s'])} | {who(row)} | {_cell(row['what'])} | {steps(row)} "
            f"| {lost} | {recovery(row)} | {slowest(row)} | {_cell(then(row))} |"
        )
    yield ""
    yield from _timelines([row for row in rows if row["timeline"]])


def _timelines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What each recovery spent its time on, from the fault to the first new step."""
    if not rows:
        return
    names = [name for name in PARTS if any(name in row["timeline"] for row in rows)]
    yield "## Recoveries, part by part"
    yield ""
    yield f"| # | {' | '.join(name.removesuffix('_s').replace('_', ' ') for name in names)} |"
    yield f"|---:|{'---:|' * len(names)}"
    for row in rows:
        cells = (span(row["timeline"][name]) if name in row["timeline"] else "" for name in names)
        yield f"| {row['number']} | {' | '.join(cells)} |"
    yield ""


def _cell(text: object) -> str:
    """One line that cannot end a table cell or begin a tag."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def _code(text: object) -> str:
    return " ".join(str(text).split()).replace("`", "'")
