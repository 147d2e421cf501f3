"""The figures of the report as plotly's JSON. Their size is bounded, whatever the size of the run.

Few stretches, incidents or ranks are drawn one by one, many as bins: a browser stays quick with 10,000
incidents, and a person sees more in 400 bars than in 60,000.
"""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from faultrun.core.humanize import span
from faultrun.journal.lines import moment
from faultrun.model.printable import printable
from faultrun.observe.account.records import Account, IncidentRecord
from faultrun.observe.account.timeline import RECOVERY, Segment, Spending, shares

Figure = dict[str, Any]

COLOURS: dict[Spending, str] = {
    Spending.TRAINING: "#2a8f62",
    Spending.RECOMPUTE: "#7f8a14",
    Spending.DETECT: "#c8324a",
    Spending.DRAIN: "#c2611a",
    Spending.CHOOSE: "#2f6fbe",
    Spending.BACKOFF: "#6b7789",
    Spending.SPAWN: "#6550c8",
    Spending.START: "#94529f",
    Spending.UNREPORTED: "#7b8494",
    Spending.IDLE: "#7a6f5d",
    Spending.AWAY: "#4a505b",
}
_MOST_STRETCHES = 400
_BINS = 400
_MOST_MARKS = 300
_MOST_BARS = 120
_MOST_RANKS = 64
_UNSEEN = "\u200b"
_GREY = "rgba(128,128,128,0.22)"


def figures(account: Account) -> dict[str, Figure]:
    """The figures that have something to show, by the id of their place on the page."""
    found = {"timeline": _timeline(account)}
    recovered = [fault for fault in account.faults if fault.recovery_s]
    if recovered:
        found["recoveries"] = _recoveries(recovered)
    if len(account.faults) > 1:
        found["causes"] = _causes(account.faults)
        if max((life.workers for life in account.lives), default=0) > 1:
            found["ranks"] = _ranks(account)
    return found


def _timeline(account: Account) -> Figure:
    """Time on one axis: what it was spent on, the incidents, and the steps below."""
    clock = _Clock(account.began_utc)
    few = len(account.segments) <= _MOST_STRETCHES
    traces = _stretches(account.segments, clock) if few else _binned(account, clock)
    traces += _marks(account, clock)
    with_steps = len(account.steps) > 1
    low = 0.42 if with_steps else 0.0
    bare = {"fixedrange": True, "showgrid": False, "zeroline": False, "showticklabels": False}
    layout: dict[str, Any] = {
        "barmode": "stack",
        "bargap": 0,
        "height": 420 if with_steps else 260,
        "margin": {"l": 62, "r": 16, "t": 8, "b": 40},
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": "zoom",
        "modebar": {"bgcolor": "rgba(0,0,0,0)"},
        "xaxis": {
            "type": "date",
            "anchor": "y2" if with_steps else "y",
            "gridcolor": _GREY,
            "range": [clock.at(0), clock.at(account.wall_s)],
        },
        "yaxis": {**bare, "domain": [low, 0.84], "range": [0, 1]},
        "yaxis3": {**bare, "domain": [0.88, 1]},
    }
    if with_steps:
        traces.append(_steps(account, clock))
        layout["yaxis2"] = _axis("step", domain=[0, low - 0.06], zeroline=False)
    return {"data": traces, "layout": layout}


def _stretches(segments: Sequence[Segment], clock: "_Clock") -> list[dict[str, Any]]:
    """One bar a stretch, on the run's own lane."""
    by_kind: dict[Spending, list[Segment]] = {}
    for segment in segments:
        by_kind.setdefault(segment.kind, []).append(segment)
    return [
        _bars(
            [clock.at((one.begin_s + one.end_s) / 2) for one in found],
            [1] * len(found),
            kind,
            f"<b>{kind.value}</b> %{{customdata[0]}}<br>incarnation %{{customdata[1]}}<br>%{{x|%H:%M:%S}}",
            name=kind.value,
            width=[max(one.end_s - one.begin_s, 1e-3) * 1000 for one in found],
            customdata=[[span(one.end_s - one.begin_s), one.incarnation] for one in found],
        )
        for kind, found in by_kind.items()
    ]


def _binned(account: Account, clock: "_Clock") -> list[dict[str, Any]]:
    """Shares of each kind in equal bins of time."""
    width_s = account.wall_s / _BINS
    found = shares(account.segments, account.wall_s, _BINS)
    middles = [clock.at((place + 0.5) * width_s) for place in range(_BINS)]
    return [
        _bars(
            middles,
            [round(share, 4) for share in found[kind]],
            kind,
            f"<b>{kind.value}</b> %{{y:.1%}} of {span(width_s)}<br>%{{x|%Y-%m-%d %H:%M}}",
            name=kind.value,
            width=width_s * 1000,
        )
        for kind in Spending
        if kind in found
    ]


def _marks(account: Account, clock: "_Clock") -> list[dict[str, Any]]:
    if not account.faults:
        return []
    if len(account.faults) > _MOST_MARKS:
        width_s = account.wall_s / _BINS
        counts = Counter(min(_BINS - 1, int(fault.at_s / width_s)) for fault in account.faults)
        places = [clock.at((place + 0.5) * width_s) for place in counts]
        hover = "%{y} incidents<br>%{x|%Y-%m-%d %H:%M}"
        return [
            _bars(places, list(counts.values()), Spending.DETECT, hover, yaxis="y3", width=width_s * 1000)
        ]
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [clock.at(fault.at_s) for fault in account.faults],
            "y": [0.5] * len(account.faults),
            "yaxis": "y3",
            "marker": {"symbol": "triangle-down", "size": 11, "color": COLOURS[Spending.DETECT]},
            "text": [_headline(fault) for fault in account.faults],
            "hovertemplate": "%{text}<extra></extra>",
        }
    ]


def _steps(account: Account, clock: "_Clock") -> dict[str, Any]:
    """A line for each life: between two of them nothing was trained, and the step may go back."""
    lives = iter(sorted(life.begin_s for life in account.lives))
    begins_s = next(lives, math.inf)
    points: list[tuple[str | None, int | None]] = []
    for at_s, step in account.steps:
        if at_s >= begins_s:
            points.append((None, None))
            while at_s >= begins_s:
                begins_s = next(lives, math.inf)
        points.append((clock.at(at_s), step))
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(account.steps) < 200 else "lines",
        "connectgaps": False,
        "x": [at for at, _ in points],
        "y": [step for _, step in points],
        "yaxis": "y2",
        "line": {"color": COLOURS[Spending.CHOOSE], "width": 1.6},
        "marker": {"size": 4},
        "hovertemplate": "step %{y:,}<br>%{x|%H:%M:%S}<extra></extra>",
    }


def _recoveries(faults: Sequence[IncidentRecord]) -> Figure:
    """What each recovery was spent on; of many, the mean of equally many neighbours."""
    size = -(-len(faults) // _MOST_BARS)
    groups = [faults[at : at + size] for at in range(0, len(faults), size)]
    names = [str(one[0].number) if size == 1 else f"{one[0].number}-{one[-1].number}" for one in groups]
    traces = [
        _bars(
            names,
            [round(sum(one.spent.get(kind, 0.0) for one in group) / len(group), 4) for group in groups],
            kind,
            f"incident %{{x}}<br><b>{kind.value}</b> %{{y:.3~f}} s",
            name=kind.value,
        )
        for kind in RECOVERY
        if any(kind in fault.spent for fault in faults)
    ]
    across = _axis("incident (mean of neighbours)" if size > 1 else "incident", type="category", nticks=12)
    return {"data": traces, "layout": _layout(across, _axis("seconds", zeroline=False), barmode="stack")}


def _causes(faults: Sequence[IncidentRecord]) -> Figure:
    counts = Counter(_shown(fault.what) for fault in faults).most_common(8)[::-1]
    labels = [text if len(text) <= 34 else text[:33] + "…" for text, _ in counts]
    trace = _bars(
        [count for _, count in counts],
        [label + _UNSEEN * at for at, label in enumerate(labels)],  # equal labels would be one bar
        Spending.DRAIN,
        "%{customdata}<br>%{x} incidents",
        orientation="h",
        customdata=[text for text, _ in counts],
    )
    up = _axis("", zeroline=False, automargin=True, ticksuffix="  ")
    return {"data": [trace], "layout": _layout(_axis("incidents", **_whole_numbers(counts[-1][1])), up)}


def _ranks(account: Account) -> Figure:
    counts = Counter(fault.rank for fault in account.faults if fault.rank is not None)
    world = max(life.workers for life in account.lives)
    chosen, across = list(range(max(world, max(counts, default=0) + 1))), "rank"
    if len(chosen) > _MOST_RANKS:
        chosen = [rank for rank, _ in counts.most_common(_MOST_RANKS // 2)]
        across = f"rank (the {len(chosen)} of {len(counts):,} that failed first most often)"
    names, hover = [str(rank) for rank in chosen], "rank %{x} failed first %{y} times"
    trace = _bars(names, [counts[rank] for rank in chosen], Spending.SPAWN, hover)
    up = _axis("failed first", zeroline=False, **_whole_numbers(max(counts.values(), default=0)))
    return {"data": [trace], "layout": _layout(_axis(across, type="category"), up)}


def _bars(x: list[Any], y: list[Any], colour: Spending, hover: str, **more: Any) -> dict[str, Any]:
    marker = {"color": COLOURS[colour], "line": {"width": 0}}
    return {
        "type": "bar",
        "x": x,
        "y": y,
        "marker": marker,
        "hovertemplate": f"{hover}<extra></extra>",
        **more,
    }


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, "gridcolor": _GREY, "fixedrange": True, **more}


def _layout(across: dict[str, Any], up: dict[str, Any], **more: Any) -> dict[str, Any]:
    margin = {"l": 54, "r": 12, "t": 8, "b": 44}
    return {"height": 300, "margin": margin, "showlegend": False, "xaxis": across, "yaxis": up, **more}


def _whole_numbers(most: int) -> dict[str, Any]:
    """An axis of counts: no half incident between two ticks."""
    return {"dtick": 1} if most < 10 else {"tickformat": ",d"}


def _headline(fault: IncidentRecord) -> str:
    who = "" if fault.rank is None else f"rank {fault.rank} "
    step = "" if fault.step is None else f" at step {fault.step:,}"
    what = f"{who}{_shown(fault.what)}{step}"
    return f"<b>incident {fault.number}</b><br>{what}<br>recovery {span(fault.recovery_s or 0.0)}"


def _shown(text: str) -> str:
    """One line, and nothing that plotly would take for a tag."""
    return printable(text.split("\n", 1)[0][:100]).replace("<", "\u2039").replace(">", "\u203a")


class _Clock:
    """Seconds of the run as moments for plotly; in UTC, as every other log of a cluster."""

    def __init__(self, began_utc: str) -> None:
        self._zero = (moment(began_utc) or datetime.fromtimestamp(0, timezone.utc)).replace(tzinfo=None)

    def at(self, seconds: float) -> str:
        """ISO 8601 without a zone, which plotly would shift."""
        return (self._zero + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
