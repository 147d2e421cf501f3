"""``python -m benchmarks.campaigns.layouts --layouts 300 --seed 1``: how training codes lay their saves out.

Each case is a real run whose rank saves as its layout says and is killed as its fault says. After each fault
the script must get the newest save that was whole, or it was told before that nobody knows which file it
loads. ``--keep`` holds a line a case and goes on where it was cut. Ends with 1 when a script got another.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.campaigns import engine
from benchmarks.campaigns.layouts_files import perform
from benchmarks.campaigns.layouts_plan import RIGHT, TOLD, UNKNOWABLE, Case, draw
from benchmarks.harness import journal
from benchmarks.harness.launched import ROOT, start_in
from benchmarks.harness.launchers import LOG_DIR

_JOB = str(ROOT / "benchmarks" / "jobs" / "layouts.py")
_RUN_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the script got at last; ``guessed``: faultrun had said that it cannot tell."""

    verdict: str
    guessed: bool


def run(case: Case, folder: Path) -> Seen:
    """Run it to its end, and say what the script got."""
    root = folder / "out"
    root.mkdir()
    for op in case.before():
        perform(op, root)
    options = (
        *("--framework=plain", "--worker_num=1", "--standby=none", "--checkpoint_dir=out"),
        *("--backoff=10ms..20ms", "--max_restarts=20", f"--log_dir={LOG_DIR}"),
    )
    script = (sys.executable, _JOB, str(case.number), str(case.seed))
    process = start_in(folder, (sys.executable, "-m", "faultrun", *options, *script))
    try:
        code = process.wait(_RUN_S)
    finally:
        process.kill()
    first = journal.of(journal.read(folder), "FirstSaveTold")
    said = [line for line in first if line["instead"] or not line["path"]]
    got = journal.lines_of(folder / "got.jsonl")
    verdict = str(got[-1]["told" if said else "untold"]) if got else ""
    if code not in {0, 65}:
        verdict = f"wrong: it ended with {code}"
    elif code:
        noted = folder / "written.json"
        members = frozenset(json.loads(noted.read_text())) if noted.exists() else frozenset[int]()
        due = case.newest_whole(root, members, len(got)) if members else None
        verdict = case.verdict(root, due, (), told=bool(said))
    return Seen(verdict=verdict or f"wrong: it never came back, {code}", guessed=bool(said))


def _table(rows: Sequence[engine.Row]) -> list[str]:
    """A row for each kind of layout."""
    lines = ["", "| layout | cases | right | cannot tell | unknowable | wrong | said to be a guess |"]
    lines.append("|---|---|---|---|---|---|---|")
    for kind in (*dict.fromkeys(row["kind"] for row in rows), "all"):
        of = [row for row in rows if kind in {row["kind"], "all"}]
        count = Counter(row["verdict"].partition(":")[0] for row in of)
        cells = (
            len(of),
            *(count[one] for one in (RIGHT, TOLD, UNKNOWABLE, "wrong")),
            sum(row["guessed"] for row in of),
        )
        lines.append(f"| {kind} | {' | '.join(map(str, cells))} |")
    return lines


CAMPAIGN: engine.Campaign[Case, Seen] = engine.Campaign(
    name="layouts",
    cases="layouts",
    run=run,
    judge=lambda _, seen: [seen.verdict] if seen.verdict.startswith("wrong") else [],
    columns={
        "kind": lambda case, _: case.layout.kind,
        "case": lambda case, _: case.told(),
        **engine.of_seen("verdict", "guessed"),
    },
    summary=_table,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code says whether each script got what it should have."""
    parser = engine.options("layouts", __doc__, beside=2)
    return engine.main(CAMPAIGN, _drawn, parser, argv, many=300)


def _drawn(layouts: int, seed: int) -> list[Case]:
    """Shards need lists of who holds what, which MindSpore writes: only the tests have them."""
    return [case for case in (draw(number, seed) for number in range(layouts)) if not case.layout.ranks]


if __name__ == "__main__":
    sys.exit(main())
