"""What a campaign over trainings whose survivors stay has shown: rows as they come, and the page of all."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from benchmarks.campaigns.promises import Row
from benchmarks.campaigns.spread import p95
from benchmarks.campaigns.stay_plan import sessions
from benchmarks.campaigns.stay_site import REJOIN_S
from benchmarks.harness import machine

HEAD = "\n".join(
    (
        "| session | death | ranks | where, how | standby parked | again after | lost | promises |",
        "|---|---|---|---|---|---|---|---|",
    )
)
_METHOD = f"""\
`make soak-stay N={{deaths}} SEED={{seed}}`: three torch ranks under `faultrun --standby=3`; a rank,
or two at once, killed at a place in its step that the seed draws: by itself exactly there, from
outside, or stopped and then killed; one time in four somebody else dies in the repair. Asked of
every rank's own notes: each step begins with the bits (parameters, buffers, optimizer, schedule,
random numbers) of a training that nobody disturbed, and ends with its loss; no step is left out,
none is made again without a lost group; nobody waits longer than --rejoin_timeout ({REJOIN_S} s)
without all beginning anew; survivors keep their process; exit code 0, nobody is left. A
DistributedDataParallel that began anew is judged up to there: wrapped anew it adds up in another
order, with faultrun or without."""
_MODES = {"ddp": "DistributedDataParallel, batch norm", "fsdp": "fully_shard"}


def deaths(rows: Iterable[Row]) -> list[Row]:
    """Without those about ends, and of a place that did not come."""
    return [row for row in rows if row["place"] >= 0 and row["killed"]]


def shown(row: Row) -> str:
    """One line of the table."""
    verdict = f"**{'; '.join(row['broken'])}** (see {row.get('see')})" if row["broken"] else "kept"
    if row["place"] < 0:
        return f"| {row['session']} {row['mode']} | | | {row['told']} | | | | {verdict} |"
    took = "-" if row["took_s"] is None else f"{row['took_s']:.2f} s"
    took += f", all anew: {row['fell_back']}" if row["fell_back"] else ""
    cells = (
        f"{row['session']} {row['mode']}",
        row["place"],
        " ".join(map(str, row["victims"])),
        row["told"] + ("" if row["killed"] else ": nobody"),
        "yes" if row["parked"] else "no",
        took,
        row["lost"],
        verdict,
    )
    return f"| {' | '.join(map(str, cells))} |"


def summary(rows: Sequence[Row]) -> str:
    """What was kept and what was not."""
    own = deaths(rows)
    broken = [row for row in rows if row["broken"]]
    killed = sum(row["killed"] for row in own)
    anew = sum(bool(row["fell_back"]) for row in own)
    stuck = sum(row["stuck"] for row in own)
    return (
        f"{len(own)} deaths, {killed} processes killed, {len(broken)} rows broke a promise;"
        f" {anew} times all began anew, {stuck} survivors ended themselves"
    )


def _run_so_far(rows: Sequence[Row], seed: int, planned: int) -> str:
    """Which sessions, where not all were run; and what was left out where one ended early."""
    missing = planned - len(deaths(rows))
    if missing <= 0:
        return ""
    run = sorted({int(row["session"]) for row in rows})
    if len(run) < len(sessions(planned, seed)):
        return f"Of the {planned} of this seed, the sessions {' '.join(map(str, run))} so far."
    return (
        f"The {missing} others of this seed did not come about: their place was not reached, or all had begun"
        " anew before them."
    )


def _lost(rows: Sequence[Row]) -> str:
    """What a lost step is, and where the dead were that cost one."""
    where = Counter(row["told"].partition(",")[0] for row in rows if row["lost"] and not row["fell_back"])
    if not where:
        return ""
    places = ", ".join(f"{count} in {place}" for place, count in where.most_common())
    return (
        "A lost step is one that a rank had finished and did again. Over shards that is the step in which the"
        f" dead rank still was, or one of two at once: {places}."
    )


def page(rows: Sequence[Row], seed: int, planned: int) -> str:
    """All of it, for people. ``planned``: so many deaths belong to that seed, run or not."""
    loads = sorted(float(row["load"]) for row in rows)
    lines = [
        "# Deaths in trainings whose survivors stay",
        "",
        _METHOD.format(deaths=planned, seed=seed),
        "",
        f"Machine: {', '.join(f'{name} {what}' for name, what in machine.describe().items())}.",
        f"Load average {loads[0]:.1f} to {loads[-1]:.1f}." if loads else "",
        "",
        f"{summary(rows)}. {_run_so_far(rows, seed, planned)}".rstrip(),
        "",
        "| over | deaths | killed | of two at once | with a second in the repair | all began anew"
        " | lost a step | again after: median, p95, longest | broken |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_of_mode(mode, words, rows) for mode, words in _MODES.items()),
        "",
        _lost(deaths(rows)),
        "",
        "| standby of the dead rank | deaths | again after: median, p95, longest |",
        "|---|---|---|",
        *_by_standby(deaths(rows)),
        "",
        "| the death | deaths | again after: median, p95, longest |",
        "|---|---|---|",
        *_by_place(deaths(rows)),
        "",
    ]
    anew = Counter(row["fell_back"] for row in deaths(rows) if row["fell_back"])
    lines += ["| all began anew because | times |", "|---|---|"] if anew else []
    lines += [f"| {words} | {count} |" for words, count in anew.most_common()]
    broken = [row for row in rows if row["broken"]]
    lines += ["", "## Broken", "", HEAD, *map(shown, broken)] if broken else []
    return "\n".join(lines) + "\n"


def _of_mode(mode: str, words: str, rows: Sequence[Row]) -> str:
    own = [row for row in deaths(rows) if row["mode"] == mode]
    cells = (
        words,
        len(own),
        sum(row["killed"] for row in own),
        sum(len(row["victims"]) > 1 for row in own),
        sum(row["second"] for row in own),
        sum(bool(row["fell_back"]) for row in own),
        sum(row["lost"] > 0 for row in own if not row["fell_back"]),
        _spread(own),
        sum(bool(row["broken"]) for row in rows if row["mode"] == mode),
    )
    return f"| {' | '.join(map(str, cells))} |"


def _by_standby(rows: Sequence[Row]) -> list[str]:
    single = [
        row for row in rows if not row["second"] and not row["fell_back"] and "parked" not in row["told"]
    ]
    kinds = {"parked": True, "not yet, or none": False}
    return [
        f"| {words} | {len(own)} | {_spread(own)} |"
        for words, parked in kinds.items()
        if (own := [row for row in single if row["parked"] is parked])
    ]


def _by_place(rows: Sequence[Row]) -> list[str]:
    places = list(dict.fromkeys(row["told"].partition(",")[0] for row in rows))
    return [
        f"| {place} | {len(own)} | {_spread(own)} |"
        for place in sorted(places)
        if (own := [row for row in rows if row["told"].partition(",")[0] == place])
    ]


def _spread(rows: Sequence[Row]) -> str:
    took = sorted(row["took_s"] for row in rows if row["took_s"])
    if not took:
        return "-"
    return f"{statistics.median(took):.2f}, {p95(took):.2f}, {took[-1]:.2f} s"
