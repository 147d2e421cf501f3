"""The timeline as shapes: where each bar, mark and word stands. Pure; the template makes SVG of it.

Across, places are shares of the width in percent, so that a picture fits a desk, a phone and paper; down,
they are CSS pixels, so that words keep their size. Many stretches or marks become one path of bounded size.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faultrun.core.humanize import several, span
from faultrun.observe.report.words import clock, who

_ACROSS = 2000
"""The width of a path's own coordinates."""
_MOST_LIVES, _MOST_LANES, _MOST_MARKS = 60, 8, 60
_BINS = 160
_LEAST_WIDTH = 0.15
_ROOM_FOR_NUMBER = 4.5
"""Percent of the width that a number in a bar needs on a narrow screen (380 pixels), and one beside a dot."""
_ROOM_BESIDE_DOT, _ROOM_OF_DIGIT = 4.5, 2.0
_BAND, _LIVES, _LANE, _CURVE, _GAP, _AXIS = 26, 16, 20, 96, 12, 36
_ON_A_DESK, _NOT_ON_A_PHONE = " desk", " wide"
"""Words that go where the screen is narrower than 640, and than 440 pixels."""
_HUNG = "hang"
_TICKS_S = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800,
    21600, 43200, *(86400 * days * 10**power for power in range(6) for days in (1, 2, 5)),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A rectangle; ``x`` and ``width`` in percent, ``y`` and ``height`` in pixels, ``style`` a CSS class."""

    x: float
    width: float
    y: float
    height: float
    style: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A round mark; ``x`` in percent."""

    x: float
    y: float
    style: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A path in coordinates of ``_ACROSS`` by ``down``, as wide as the picture and ``height`` pixels high."""

    y: float
    height: float
    down: float
    style: str
    d: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Text that begins, ends or has its middle at ``x`` percent and ``dx`` pixels, by its ``style``."""

    x: float
    y: float
    text: str
    style: str
    dx: int = 0


@dataclass(slots=True)
class Picture:
    """Shapes in the order in which they are drawn; ``height`` in pixels."""

    height: float = 0.0
    rules: list[tuple[float, float, float]] = field(default_factory=list)
    """Grid lines: ``x`` in percent, and from where to where down."""
    levels: list[float] = field(default_factory=list)
    """Lines across, by their ``y``."""
    bars: list[Stretch] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    words: list[Label] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was left out."""

    def lane(self, name: str, height: float, gap: float = _GAP) -> float:
        """Make room for one more lane with this name beside it; return where it begins."""
        top = self.height + (gap if self.height else 0)
        if name:
            self.words.append(Label(x=0, y=top + height / 2 + 4, text=name, style="lane", dx=-8))
        self.height = top + height
        return top


def timeline(report: Mapping[str, Any]) -> Picture:
    """Time by its use, lives, who failed first in each incident, and steps; from the document alone."""
    picture = Picture()
    if (wall_s := float(report["wall_s"])) <= 0:
        return picture
    scale = 100 / wall_s
    _band(picture, report["over_time"], scale)
    _lives(picture, report["incarnations"], scale)
    if report["incidents"]:
        _lanes(picture, report, scale)
    if len(report["progress"]) > 1:
        _curve(picture, report, scale)
    _axis(picture, report, scale)
    return picture


def _band(picture: Picture, over_time: Mapping[str, Any], scale: float) -> None:
    top = picture.lane("time", _BAND)
    rows = sorted(over_time["stretches"], key=lambda row: row[2] != "training")  # short ones lie on top
    for begin_s, end_s, kind, number in rows:
        title = f"{kind} {span(end_s - begin_s)}, life {number}"
        width = max((end_s - begin_s) * scale, _LEAST_WIDTH)
        x = min(begin_s * scale, 100 - _LEAST_WIDTH)
        style = f"k-{kind}"
        width = min(width, 100 - x)
        picture.bars.append(Stretch(x=x, width=width, y=top, height=_BAND, style=style, title=title))
    below: list[float] = []
    for kind, found in over_time["shares"].items():
        below = below or [0.0] * len(found)
        style, drawn = f"solid k-{kind}", _stack(found, below)
        picture.paths.append(Path(y=top, height=_BAND, down=100, style=style, d=drawn))
        below = [base + share for base, share in zip(below, found, strict=True)]


def _stack(found: Sequence[float], below: Sequence[float]) -> str:
    """Boxes of one kind on what is below them; equal neighbours are one box."""
    width = _ACROSS / len(found)
    made, at = [], 0
    while at < len(found):
        until = at + 1
        while until < len(found) and (found[until], below[until]) == (found[at], below[at]):
            until += 1
        if (height := round(found[at] * 100, 1)) > 0:
            x, end = round(at * width), round(until * width)
            made.append(f"M{x} {100 - below[at] * 100:.4g}v-{height:g}H{end}v{height:g}z")
        at = until
    return "".join(made)


def _lives(picture: Picture, lives: Sequence[Mapping[str, Any]], scale: float) -> None:
    if len(lives) > _MOST_LIVES:
        picture.notes.append(f"{len(lives):,} lives are too many to draw.")
    if not 1 < len(lives) <= _MOST_LIVES:
        return
    top = picture.lane("lives", _LIVES, gap=5)
    for at, life in enumerate(lives):
        x, width = life["begin_s"] * scale, (life["end_s"] - life["begin_s"]) * scale
        title = f"life {life['number']}: {span(life['end_s'] - life['begin_s'])}, {life['end']}"
        style = "life odd" if at % 2 else "life"
        picture.bars.append(Stretch(x=x, width=width, y=top, height=_LIVES, style=style, title=title))
        if width >= _ROOM_FOR_NUMBER:
            text = str(life["number"])
            style = "middle" + _NOT_ON_A_PHONE
            picture.words.append(Label(x=x + width / 2, y=top + _LIVES - 4, text=text, style=style))


def lanes(report: Mapping[str, Any]) -> list[int]:
    """The ranks that get a lane: all of a few; of many those that failed first most often."""
    counts = Counter(one["rank"] for one in report["incidents"] if one["rank"] is not None)
    if (world := max(report["workers"], max(counts, default=-1) + 1)) <= _MOST_LANES:
        return list(range(world))
    return sorted(sorted(counts, key=lambda rank: (-counts[rank], rank))[:_MOST_LANES])


def _lanes(picture: Picture, report: Mapping[str, Any], scale: float) -> None:
    incidents = report["incidents"]
    rows: list[tuple[str, int | None]] = [(f"rank {rank}", rank) for rank in lanes(report)]
    if any(one["rank"] is None for one in incidents):
        rows.append(("no rank", None))
    if len(rows) < report["workers"]:
        picture.notes.append(f"Of {report['workers']:,} ranks, those that failed first most often.")
    shown = [one for one in incidents if one["rank"] in {rank for _, rank in rows}]
    for name, rank in rows:
        mine = [one for one in shown if one["rank"] == rank]
        top = picture.lane(name, _LANE, gap=4 if name != rows[0][0] else _GAP)
        picture.levels.append(top + _LANE / 2)
        if len(shown) > _MOST_MARKS:
            picture.paths.append(_many(mine, top, scale))
        else:
            _dots(picture, mine, top + _LANE / 2, scale)
    many = "A stroke stands for faults of ranks that failed first: the longer, the more."
    few = "A dot is a fault at the rank that failed first, a ring a hang."
    picture.notes.append(many if len(shown) > _MOST_MARKS else few)


def _dots(picture: Picture, faults: Sequence[Mapping[str, Any]], y: float, scale: float) -> None:
    places = [min(100.0, fault["at_s"] * scale) for fault in faults]
    neighbours = zip([-math.inf, *places][: len(places)], [*places, math.inf][1:], strict=True)
    for fault, x, (before, after) in zip(faults, places, neighbours, strict=True):
        what = str(fault["what"]).split("\n", 1)[0][:100]
        title = f"incident {fault['number']}: {who(fault)} {what}, after {span(fault['at_s'])}"
        picture.dots.append(Dot(x=x, y=y, style="hung" if fault["cause"] == _HUNG else "died", title=title))
        text = str(fault["number"])
        room = _ROOM_BESIDE_DOT + _ROOM_OF_DIGIT * len(text)
        if min(after, 100) - x >= room:
            picture.words.append(Label(x=x, y=y + 4, text=text, style="after" + _NOT_ON_A_PHONE, dx=7))
        elif after == math.inf and x - max(0, before) >= room * 2:
            picture.words.append(Label(x=x, y=y + 4, text=text, style="before" + _NOT_ON_A_PHONE, dx=-7))


def _many(faults: Sequence[Mapping[str, Any]], top: float, scale: float) -> Path:
    """A stroke for each stretch of time in which the rank failed first, the longer the more often."""
    counts = Counter(min(_BINS - 1, int(fault["at_s"] * scale / 100 * _BINS)) for fault in faults)
    most = max(counts.values(), default=1)
    width = _ACROSS / _BINS
    d = "".join(
        f"M{round((place + 0.5) * width)} {_LANE}v-{4 + (_LANE - 4) * count / most:.3g}"
        for place, count in sorted(counts.items())
    )
    return Path(y=top, height=_LANE, down=_LANE, style="strokes", d=d)


def _curve(picture: Picture, report: Mapping[str, Any], scale: float) -> None:
    """A line for each of few lives: between two of them nothing was trained, and the step may go back."""
    points, lives = report["progress"], report["incarnations"]
    low, high = min(step for _, step in points), max(step for _, step in points)
    ticks = _nice(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    top = picture.lane("", _CURVE)
    rise = _CURVE / max(1, high - low)
    begins = iter(sorted(life["begin_s"] for life in lives) if len(lives) <= _MOST_LIVES else ())
    next_s = next(begins, math.inf)
    made: list[str] = []
    for at_s, step in points:
        pen = "L" if made else "M"
        while at_s >= next_s:
            pen, next_s = "M", next(begins, math.inf)
        made.append(f"{pen}{round(at_s * scale / 100 * _ACROSS)} {_CURVE - (step - low) * rise:.4g}")
    picture.paths.append(Path(y=top, height=_CURVE, down=_CURVE, style="curve", d="".join(made)))
    for tick in ticks:
        y = top + _CURVE - (tick - low) * rise
        picture.levels.append(y)
        picture.words.append(Label(x=0, y=y + 4, text=short(tick), style="lane", dx=-8))
    picture.words.append(Label(x=0, y=top + 12, text="global step", style="note", dx=6))


def _nice(low: int, high: int) -> list[int]:
    """Two to four round numbers that hold ``low`` and ``high`` or lie between them."""
    reach = max(1, high - low)
    size = 10 ** int(math.log10(reach))
    step = next(size * part // 10 for part in (10, 20, 50, 100) if size * part // 10 * 3 >= reach)
    step = max(1, step)
    return list(range(low // step * step, high + 1, step))


def short(count: int) -> str:
    """``1,200``, ``120k``, ``3.4M``: at most seven characters."""
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(count) >= max(size, 10**5):
            return f"{count / size:.4g}{unit}"
    return f"{count:,}"


def _axis(picture: Picture, report: Mapping[str, Any], scale: float) -> None:
    bottom = picture.height + 6
    ticks = _ticks(float(report["wall_s"]))
    for at, at_s in enumerate(ticks):
        x = at_s * scale
        style = "after" if at == 0 else "before" if x > 89 else "middle"
        style += _ON_A_DESK if at % 2 and len(ticks) > 4 else ""
        picture.rules.append((x, 0, bottom))
        picture.words.append(Label(x=x, y=bottom + 13, text=span(at_s) if at_s else "0", style=style))
    late = f"before note{_NOT_ON_A_PHONE}"
    for x, utc, style in ((0, report["began_utc"], "after note"), (100, report["last_utc"], late)):
        if text := clock(utc)[:16]:
            picture.words.append(Label(x=x, y=bottom + 30, text=f"{text} UTC", style=style))
    picture.levels.append(bottom)
    picture.height = bottom + _AXIS


def _ticks(wall_s: float) -> list[float]:
    """At most seven round moments from the beginning on."""
    step = next((step for step in _TICKS_S if wall_s / step <= 6), wall_s)
    return [at * step for at in range(int(wall_s / step) + 1)]


def described(report: Mapping[str, Any]) -> str:
    """What the timeline shows, for those who do not see it."""
    lives, incidents = len(report["incarnations"]), several(len(report["incidents"]), "incident")
    began = "1 life" if lives == 1 else f"{lives:,} lives"
    return f"{span(report['wall_s'])} from left to right: {began}, {incidents}. The tables hold the same."
