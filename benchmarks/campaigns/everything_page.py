"""What many faults have shown, for people: rows as they come, the page of all, and its plot."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.campaigns import everything_headline
from benchmarks.campaigns.everything_headline import p95
from benchmarks.campaigns.everything_plan import IS_NO_FAULT, SETTINGS, Kind, When
from benchmarks.campaigns.everything_presets import PRESETS
from benchmarks.harness import kept, machine, strips
from benchmarks.harness.launched import ROOT
from benchmarks.harness.strips import Panel, Strip

Row = Mapping[str, Any]

PAGE = ROOT / "benchmarks" / "results" / "thousand.md"

HEAD = (
    "| run | what | whom | when | way back | again after | steps lost | |\n|---|---|---|---|---|---|---|---|"
)
PROMISES = {
    "resumes": "an incarnation that did not begin, all ranks alike, at the newest whole save",
    "steps": "a step that was left out, done twice, with other samples, or ended with other bits",
    "together": "ranks of two incarnations at once",
    "orphans": "a process that outlived its rank or its run",
    "saves": "a save that was made twice",
    "waits": "a wait without a name",
    "codes": "an end with another code than promised",
    "recovery": "a training that did not go on (71 where one node's disk is full, as promised, is none)",
    "journals": "journals that are torn or disagree",
    "cards": "cards that differ between nodes",
}
WAYS = (
    *("survivors stayed", "trained on", "trained on and healed"),
    *("warm restart", "partly warm restart", "cold restart"),
    *("shrunk", "grown", "shrunk and grown", "went on by itself", "ended"),
)
_LONGEST = 100
_KINDS = frozenset(kind.value for kind in Kind if kind not in IS_NO_FAULT)


def faults(rows: Iterable[Row]) -> list[Row]:
    """Those that struck somebody; the others are ends of runs, and devices that are well again."""
    return [row for row in rows if row["kind"] in _KINDS and row["struck"] != "nobody"]


def shown(row: Row) -> str:
    """A line of the table."""
    took = "-" if row["recovery_s"] is None else f"{row['recovery_s']:.1f} s"
    wrong = [f"{PROMISES[name]}: {'; '.join(words)}" for name, words in row["broken"].items()]
    verdict = f"**{' / '.join(wrong)}** see {row.get('see')}" if wrong else "kept"
    if row["ended"] is not None:
        verdict += f", the run ended with {row['ended']}"
    cells = (f"{row['session']} {row['run']}", row["kind"], row["struck"], row["when"], row["way"], took)
    return f"| {' | '.join(map(str, cells))} | {row['lost']} | {verdict} |"


def summary(rows: Sequence[Row]) -> str:
    """What was kept and what was not."""
    broken = [row for row in rows if row["broken"]]
    inside = sum(row["when"] != When.TRAINING.value for row in faults(rows))
    ends = sum(row["kind"] == "the end" for row in rows)
    return (
        f"{len(faults(rows))} faults in {len({row['session'] for row in rows})} runs, {inside} of them"
        f" in what another had set off; {ends} ends; {len(broken)} rows with a broken promise"
    )


def write(page: Path | None, keep: Path | None, preset: str, seed: int, wanted: int) -> None:
    """The page, and its plot beside it, from the rows that are kept; with ours the README and the docs."""
    if page is None or keep is None:
        return
    rows = kept.read(keep)
    mended = kept.read(keep.with_name(f"{keep.stem}-mended.jsonl"))
    draw(rows, page.with_suffix(".svg"))
    about = PRESETS[preset]
    lines = [
        f"# {about.title}",
        "",
        *_measured(rows, seed, wanted),
        about.method.format(seed=seed, faults=wanted),
    ]
    lines += ["", f"{summary(rows)}.", "", f"![how long until all ranks train again]({page.stem}.svg)", ""]
    page.write_text("\n".join([*lines, *_tables(rows, mended)]), encoding="utf-8")
    if page.resolve() == PAGE:
        everything_headline.write(faults(rows))


def _measured(rows: Sequence[Row], seed: int, wanted: int) -> list[str]:
    """How many, and on which machine."""
    loads = sorted(float(row["load"]) for row in rows) or [0.0]
    return [
        f"{everything_headline.counted(len(faults(rows)), wanted, 'faults')}, seed {seed}. The machine was"
        f" shared with other work while times were taken: load average {loads[0]:g} to {loads[-1]:g}, median"
        f" {statistics.median(loads):g}, on {machine.describe()['cores']} cores; each row has its own. Times"
        " show what to expect of a busy machine and are no benchmark (those are in the README and in"
        " several_nodes.md).",
        "",
        f"Machine: {machine.words()}.",
        "",
    ]


def _tables(rows: Sequence[Row], mended: Sequence[Row]) -> list[str]:
    own = faults(rows)
    exact = [row for row in own if row["run"].startswith("exact")]
    ended = [row for row in rows if row["ended"]]
    alone = [(row["kind"], one) for row in rows for one in row.get("alone", ())]
    lines = [
        *("## Promises", "", "| broken would be | rows |", "|---|---|"),
        *(f"| {words} | {sum(name in row['broken'] for row in rows)} |" for name, words in PROMISES.items()),
        "",
        *_table("fault", own, lambda row: str(row["kind"]), [kind.value for kind in Kind]),
        *_table("when", own, lambda row: str(row["when"]), [when.value for when in When]),
        *_table("way back", own, lambda row: str(row["way"]), WAYS),
        *_table("training", own, lambda row: str(row["run"]), [one.name for one in SETTINGS]),
        *(_table("place", exact, lambda row: str(row["at"])) if exact else ()),
        *(_table("standbys", exact, _readiness) if exact else ()),
        *_ways_of_kinds(own),
        *_counted("A run ended after", (f"{row['kind']}, with {row['ended'][0]}" for row in ended)),
        *_counted("A node ended alone after", (f"{kind}, with {one.split()[1]}" for kind, one in alone)),
        *_counted("Nodes waited for", (words[:_LONGEST] for row in rows for words in row["waits"])),
    ]
    lines += ["## Found, mended, and run again", "", *_mended(mended), ""] if mended else []
    broken = [row for row in rows if row["broken"]]
    return lines + (["## Broken", "", HEAD, *map(shown, broken), ""] if broken else [])


def _readiness(row: Row) -> str:
    return "waited for" if row["ready"] else "as it comes"


def _counted(what: str, words: Iterable[str]) -> list[str]:
    """A table of how often each was."""
    lines = [f"| {one} | {count} |" for one, count in Counter(words).most_common()]
    return [f"| {what} | times |", "|---|---|", *lines, ""] if lines else []


def _table(what: str, rows: Sequence[Row], of: Callable[[Row], str], names: Iterable[str] = ()) -> list[str]:
    """A line for each of ``names``, and for others that are in the rows."""
    head = f"| {what} | faults | restarts or repairs | again after: median, p95, longest"
    lines = [
        f"## By {what}",
        "",
        f"{head} | steps lost: median, most | broken |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys((*names, *sorted(map(of, rows)))):
        mine = [row for row in rows if of(row) == name]
        if mine:
            again = [row for row in mine if row["lives"] > 0]
            lost = [int(row["lost"]) for row in again]
            worst = f"{statistics.median(lost):g}, {max(lost)}" if lost else "-"
            broken = sum(bool(row["broken"]) for row in mine)
            lines.append(f"| {name} | {len(mine)} | {len(again)} | {_spread(again)} | {worst} | {broken} |")
    return [*lines, ""]


def _ways_of_kinds(rows: Sequence[Row]) -> list[str]:
    head = " | ".join(WAYS)
    lines = ["## Which way back", "", f"| fault | {head} |", f"|---|{'---|' * len(WAYS)}"]
    for kind in Kind:
        ways = Counter(row["way"] for row in rows if row["kind"] == kind.value)
        if ways:
            lines.append(f"| {kind.value} | {' | '.join(str(ways[way] or '') for way in WAYS)} |")
    return [*lines, ""]


def _mended(rows: Sequence[Row]) -> list[str]:
    """What was broken before, and what is true since."""
    lines = ["| run | what | whom | when | broken | since |", "|---|---|---|---|---|---|"]
    for row in rows:
        wrong = "; ".join(words for of_one in row["broken"].values() for words in of_one)
        told = (row[name] for name in ("kind", "struck", "when"))
        cells = (f"{row['session']} {row['run']}", *told, wrong, row["mended"])
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _spread(rows: Sequence[Row]) -> str:
    took = sorted(float(row["recovery_s"]) for row in rows if row["recovery_s"] is not None)
    if not took:
        return "-"
    return f"{statistics.median(took):.1f}, {p95(took):.1f}, {took[-1]:.1f} s"


_TICKS_S = (0.1, 0.3, 1, 3, 10, 30, 100)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the plot to ``path``, one panel for trainings on one node and one for those over three."""
    panels = [
        Panel("one node", _strips([row for row in rows if "1 node" in row["run"]])),
        Panel("three nodes and a spare", _strips([row for row in rows if "3 nodes" in row["run"]])),
    ]
    panels = [panel for panel in panels if panel.strips] or [Panel("nothing yet", [])]
    about = "seconds from the fault until every rank has done a step again (shared machine)"
    strips.draw(panels, strips.TICKS, _TICKS_S, about, path)


def _strips(rows: Sequence[Row]) -> list[Strip]:
    """Those that have any values, with how many."""
    found = {way: _values([row for row in rows if row["way"] == way]) for way in WAYS}
    return [Strip(f"{way} ({len(values)})", values, ours=True) for way, values in found.items() if values]


def _values(rows: Sequence[Row]) -> list[float]:
    took = [row["recovery_s"] for row in rows if row["struck"] != "nobody" and row["place"] >= 0]
    return sorted(max(0.01, float(one)) for one in took if one is not None)
