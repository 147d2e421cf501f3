"""``python -m benchmarks.campaigns.pauses --pauses 200 --hangs 60``: healthy pauses, and hangs with a limit.

Each is one real training. Nobody may be replaced for a pause, whatever it is;
each hang must be warned of soon, and its rank, no other, be replaced at the
limit. With ``--keep`` rows are kept, and only what is missing is run. Ends
with 1 when anything was wrong; the folder of such a run is kept.
"""

import sys
from collections.abc import Sequence
from statistics import median

from benchmarks.campaigns import engine
from benchmarks.campaigns.engine import Campaign, Row, of_case
from benchmarks.campaigns.pauses_run import Case, Seen, judge, missing, plan, run
from benchmarks.harness import machine

_TITLE = "# Pauses that are no hangs, and hangs that are"

CAMPAIGN: Campaign[Case, Seen] = Campaign(
    name="pauses",
    cases="pauses",
    run=run,
    judge=judge,
    columns={
        **of_case("kind", "framework", "seconds", "everybody", "limit_s"),
        "killed": lambda _, seen: bool(seen.acted),
        "warned_s": lambda _, seen: seen.warned[0]["silent_s"] if seen.warned else None,
        "warnings": lambda _, seen: len(seen.warned),
        "silent_s": lambda _, seen: seen.acted[0]["silent_s"] if seen.acted else None,
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for and is not there already."""
    parser = engine.options("pauses", __doc__, beside=4)
    parser.add_argument("--pauses", type=int, default=200)
    parser.add_argument("--hangs", type=int, default=60)
    asked = parser.parse_args(argv)
    engine.ends_with_us()
    cases = plan(asked.pauses, asked.hangs, asked.seed)
    rows = CAMPAIGN.carry_out(cases, asked)
    text = page(rows, asked.seed, sorted({f"{case.kind}: {why}" for case in cases if (why := missing(case))}))
    print(text)
    if asked.page is not None:
        asked.page.write_text(text)
    return engine.exit_code(rows)


def page(rows: Sequence[Row], seed: int, left_out: Sequence[str] = ()) -> str:
    """The campaign in print: a row for each kind."""
    pauses, hangs = [row for row in rows if not row["limit_s"]], [row for row in rows if row["limit_s"]]
    killed = sum(row["killed"] is True for row in pauses)
    in_time = sum(not row["broken"] for row in hangs)
    text = [
        _TITLE,
        "",
        f"{len(pauses)} healthy pauses, {killed} killed. {len(hangs)} hangs with a limit by the user,"
        f" {in_time} warned of soon and replaced in time with the right rank blamed.",
        f"Two ranks, steps of 50 ms, seed {seed}; {machine.words()}.",
        "",
        "| pause | jobs | of MindSpore | on all ranks | seconds | warned of | killed | wrong |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(row["kind"] for row in pauses):
        of = [row for row in pauses if row["kind"] == kind]
        spread = f"{min(row['seconds'] for row in of):g} to {max(row['seconds'] for row in of):g}"
        of_mindspore = sum(row["framework"] == "mindspore" for row in of)
        jobs = (len(of), of_mindspore, sum(row["everybody"] for row in of))
        counts = (sum(row[name] not in (None, False) for row in of) for name in ("warned_s", "killed"))
        ends = (*counts, _troubles(of))
        text.append(f"| {kind} | {' | '.join(map(str, (*jobs, spread, *ends)))} |")
    text += ["", "| hang | jobs | warned of after | replaced after the limit | wrong |"]
    text.append("|---|---|---|---|---|")
    for kind in dict.fromkeys(row["kind"] for row in hangs):
        of = [row for row in hangs if row["kind"] == kind]
        warned = _spread([row["warned_s"] for row in of if row["warned_s"] is not None])
        late = _spread([row["silent_s"] - row["limit_s"] for row in of if row["silent_s"] is not None])
        text.append(f"| {kind} | {len(of)} | {warned} | {late} | {_troubles(of)} |")
    text += ["", *(f"Not run: {one}." for one in left_out)]
    options = f"--pauses {len(pauses)} --hangs {len(hangs)} --seed {seed}"
    text.append(f"Again: `python -m benchmarks.campaigns.pauses {options}`")
    return "\n".join(text) + "\n"


def _spread(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.2f} s, at most {max(seconds):.2f} s" if seconds else "-"


def _troubles(rows: Sequence[Row]) -> str:
    return "; ".join(sorted({trouble for row in rows for trouble in row["broken"]})) or "-"


if __name__ == "__main__":
    sys.exit(main())
