"""What a campaign over several nodes proved, for people: its rows and what they come to."""

import statistics
from collections import Counter
from collections.abc import Sequence

from benchmarks.campaigns.nodes_plan import LEASE_S, Kind, When
from benchmarks.campaigns.promises import Row
from benchmarks.harness import machine

HEAD = "| run | what | whom | when | at | recovery | steps lost | |\n|---|---|---|---|---|---|---|---|"
PROMISES = {
    "resumes": "wrong resumes",
    "together": "moments with ranks of two incarnations",
    "orphans": "orphans",
    "waits": "waits without a name",
    "codes": "ends with other codes than promised",
    "recovery": "runs that did not go on",
    "journals": "journals that disagree or are torn",
    "cards": "cards that differ between nodes",
}
_KINDS = frozenset(kind.value for kind in Kind)
_LONGEST = 100


def faults(rows: Sequence[Row]) -> list[Row]:
    """Those that struck somebody; the others are ends of runs."""
    return [row for row in rows if row["kind"] in _KINDS and row["struck"] != "nobody"]


def shown(row: Row) -> str:
    """A line of the table."""
    recovery = "-" if row["recovery_s"] is None else f"{row['recovery_s']:.1f} s"
    wrong = [f"{PROMISES[name]}: {'; '.join(words)}" for name, words in row["broken"].items()]
    verdict = f"**{' / '.join(wrong)}** see {row['see']}" if wrong else "kept"
    notes = [f"the run ended with {' '.join(map(str, row['ended']))}"] if row["ended"] else []
    notes += [f"by itself: {', '.join(row['alone'])}"] if row["alone"] else []
    lost = "-" if row["lost"] is None else row["lost"]
    cells = (row["session"], row["kind"], row["struck"], row["when"], f"{row['at_s']:.0f} s", recovery, lost)
    return f"| {' | '.join(map(str, cells))} | {', '.join([verdict, *notes])} |"


def page(rows: Sequence[Row], seed: int) -> str:
    """Everything, as it is kept beside the other results."""
    about = machine.describe()
    seen = ", ".join(f"{name} {value}" for name, value in about.items())
    inside = sum(row["when"] != When.TRAINING.value for row in faults(rows))
    loads = [float(row["load"]) for row in rows if "load" in row] or [0.0]
    torch = sum(row["run"].startswith("torch") for row in faults(rows))
    return "\n".join(
        (
            "# Random faults over three nodes and a spare",
            "",
            f"{len(faults(rows))} faults, seed {seed}; {inside} in the recovery from another, {torch} in"
            f" trainings of torch with gloo. Three nodes, a spare, three etcd members, lease {LEASE_S} s.",
            f"{seen}; load average {min(loads):g} to {max(loads):g}, median {statistics.median(loads):g}.",
            "",
            summary(rows),
            "",
            f"Again: `make soak-nodes N={len(faults(rows))} SEED={seed}`",
            "",
        )
    )


def summary(rows: Sequence[Row]) -> str:
    """Promise by promise, how long each kind of fault took, and what was waited for."""
    lines = ["| promise | broken |", "|---|---|"]
    lines += [
        f"| {words} | {sum(name in row['broken'] for row in rows)} |" for name, words in PROMISES.items()
    ]
    lines += [
        "",
        "| fault | times | incarnations ended | recovery: median, longest | steps lost: median, most |",
    ]
    lines += ["|---|---|---|---|---|", *(_of_kind(kind, rows) for kind in Kind)]
    ends = Counter(f"{row['kind']}, with {row['ended'][0]}" for row in rows if row["ended"])
    lines += ["", "| a run ended after | times |", "|---|---|"]
    lines += [f"| {words} | {count} |" for words, count in ends.most_common()]
    alone = Counter(f"{row['kind']}, with {one.split()[1]}" for row in rows for one in row["alone"])
    lines += ["", "| a node ended alone after | times |", "|---|---|"] if alone else []
    lines += [f"| {words} | {count} |" for words, count in alone.most_common()]
    waits = Counter(words for row in rows for words in row["waits"])
    lines += ["", "What nodes said they waited for, and how often:", ""]
    lines += [f"* {words[:_LONGEST]}: {count}" for words, count in waits.most_common()]
    return "\n".join(lines)


def _of_kind(kind: Kind, rows: Sequence[Row]) -> str:
    mine = [row for row in faults(rows) if row["kind"] == kind.value]
    took = [row["recovery_s"] for row in mine if row["recovery_s"] is not None]
    lost = [row["lost"] for row in mine if row["lost"] is not None]
    cells = (kind.value, len(mine), len(took), _median(took, " s"), _median(lost, ""))
    return f"| {' | '.join(map(str, cells))} |"


def _median(values: Sequence[float], unit: str) -> str:
    return f"{statistics.median(values):.3g}{unit}, {max(values):.3g}{unit}" if values else "-"
