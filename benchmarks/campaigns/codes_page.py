"""``codes.md``: the matrix, what it says in plain words, and what was done in each cell."""

import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.campaigns.codes_plan import CONTENDERS, HEADINGS, TORCHRUN, Code, Contender, Fault
from benchmarks.campaigns.codes_rows import Row, Rows, Verdict
from benchmarks.harness import machine
from benchmarks.harness.launched import clean_environ

_NOTHING = "-"
_LOUD = (Verdict.FRESH, Verdict.OTHER, Verdict.FAILED, Verdict.OVERDUE)

_TITLE = "# The codes that people train with, and what a fault does to them"
_METHOD = """
Each code is one of the `examples/`: two workers on the CPU, a save every 10 steps, and it resumes itself
where it can: its `auto` takes the newest checkpoint by the code's own means. faultrun gets the code's recipe
besides. With standbys the run is longer, as they must be ready before the kill.

* *same*: exit code 0, and the last line (loss, checksum of all parameters) is that of torchrun's undisturbed
  run, bit for bit. *silent fresh start*: exit code 0, trained from the first step on again.
* *twice*: steps that were trained again. Seconds: from the kill to the first step after it; a kill between
  two saves is done three times, and its median counts.
* *SIGKILL of a rank*: rank 1, halfway between two saves. *During a save*: rank 0, once half of the files are
  there that the save before has made.
* *torn*: everything is killed at once, the largest file of the newest checkpoint is cut in the middle, and
  the same command is given again. *SIGTERM*: to the launcher, halfway between two saves; when it has ended,
  the same command again.
* The codes' own launchers are torchrun inside: `accelerate launch` (1.15, `multi_gpu_launcher`) calls
  `torch.distributed.run.run`, and on a CPU starts one process; `fabric run` (2.6) calls
  `torch.distributed.run.main` and passes no `--max-restarts`. So they are measured as torchrun, which gets
  `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`: without it many of its restarts hang ([warm](warm.md)).
"""
_AGAIN = "Again: `make codes` runs what is missing; `python -m benchmarks.codes --again` all of it."


def page(rows: Rows, codes: Sequence[Code], missing: Mapping[str, str]) -> str:
    """All of it. ``missing`` says why a code cannot run here."""
    made = [code for code in codes if code.name in {one.code for one in rows.all()}]
    around = {**machine.describe(), **versions(made)}
    loads = sorted(float(one.load) for one in rows.all()) or [0.0]
    parts = [
        _TITLE,
        _METHOD,
        f"Machine: {', '.join(f'{name} {what}' for name, what in around.items())}; load average before an"
        f" attempt {loads[0]:.1f} to {loads[-1]:.1f}. torchrun and faultrun have `--max-restarts=3`.\n",
        *table(rows, made),
        "",
        "## Read in plain words",
        "",
        *(f"* {line}" for line in reading(rows, made)),
        *(f"* Not run: {name}: {why}." for name, why in missing.items()),
        *(f"* Not measured yet: {one}." for one in _not_yet(rows, codes, missing)),
        "",
        "## What was done, and what was said",
        "",
        *_deeds(rows, made),
        "",
        _AGAIN,
    ]
    return "\n".join(parts) + "\n"


def table(rows: Rows, codes: Sequence[Code]) -> list[str]:
    """A line for each code and launcher, a column for each fault."""
    lines = [f"| code | launcher | {' | '.join(HEADINGS[fault] for fault in Fault)} |"]
    lines.append(f"|{'---|' * (len(Fault) + 2)}")
    for code in codes:
        for contender in CONTENDERS:
            cells = [_cell(rows, rows.of(code, fault, contender)) for fault in Fault]
            if any(cell != _NOTHING for cell in cells):
                lines.append(f"| {code.name} | {contender.name} | {' | '.join(cells)} |")
    return lines


def versions(codes: Sequence[Code]) -> dict[str, str]:
    """Of each distribution, as the code sees it. ImportError names the one that is not installed."""
    found: dict[str, str] = {}
    ask = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    for code in codes:
        command = (sys.executable, "-c", ask, *code.distributions)
        environ = {**clean_environ(), **code.environ}
        told = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)
        if told.returncode != 0:
            raise ImportError((told.stderr.strip().splitlines() or ["?"])[-1].rpartition(": ")[2])
        found.update(zip(code.distributions, told.stdout.split(), strict=True))
    return found


def _not_yet(rows: Rows, codes: Sequence[Code], missing: Mapping[str, str]) -> list[str]:
    """Codes and launchers of which there is nothing."""
    there = {name for one in rows.all() for name in (one.code, one.contender)}
    wanted = [*(code.name for code in codes if code.name not in missing), *(one.name for one in CONTENDERS)]
    return [", ".join(left)] if (left := [name for name in wanted if name not in there]) else []


def _cell(rows: Rows, made: Sequence[Row]) -> str:
    if not made:
        return _NOTHING
    return "; ".join(dict.fromkeys(_words(rows, made, verdict) for verdict in _in_order(rows, made)))


def _in_order(rows: Rows, made: Sequence[Row]) -> list[Verdict]:
    return list(dict.fromkeys(rows.verdict(one) for one in made))


def _words(rows: Rows, made: Sequence[Row], verdict: Verdict) -> str:
    """One verdict of a cell, with the numbers of the rounds that came to it."""
    those = [one for one in made if rows.verdict(one) is verdict]
    share = f" ({len(those)} of {len(made)})" if len(those) < len(made) else ""
    word = verdict.value
    if verdict is Verdict.FAILED:
        word = f"{word} {_codes(those)}"
    word = f"**{word}**{share}" if verdict in _LOUD else f"{word}{share}"
    numbers = []
    if those[0].fault != Fault.NONE.value:
        numbers.append(f"{span([one.twice for one in those])} twice")
    if seconds := [one.after_s for one in those if one.after_s is not None]:
        numbers.append(f"{statistics.median(seconds):.2f} s")
    return ", ".join((word, *numbers))


def _codes(rows: Sequence[Row]) -> str:
    return ", ".join(dict.fromkeys(str(one.codes[-1]) for one in rows))


def _deeds(rows: Rows, codes: Sequence[Code]) -> list[str]:
    """The harm as it was measured, and the last error where a run did not end well."""
    lines = []
    for code in codes:
        for fault in Fault:
            for contender in CONTENDERS:
                lines += [_deed(rows, one, contender) for one in rows.of(code, fault, contender)]
    return [line for line in lines if line]


def _deed(rows: Rows, one: Row, contender: Contender) -> str:
    verdict = rows.verdict(one)
    if verdict not in _LOUD and one.fault != Fault.SAVE.value:
        return ""
    late = "the save was over" if one.late else ""
    why = f"`{one.why}`" if one.why else ""
    told = " · ".join(filter(None, (one.harm, late, one.overdue, why)))
    codes = ", ".join("none" if code is None else str(code) for code in one.codes)
    return f"* {one.code}, {one.fault}, {contender.name}: {told} · {verdict.value} · exit codes {codes}"


_BAD = {
    Verdict.FRESH: "silent fresh start",
    Verdict.OTHER: "other result with exit code 0",
    Verdict.FAILED: "ended with an error",
    Verdict.OVERDUE: "did not end",
}


def reading(rows: Rows, codes: Sequence[Code]) -> list[str]:
    """One sentence a line."""
    names = {code.name for code in codes}
    made = [one for one in rows.all() if one.code in names]
    lines = [line for contender in CONTENDERS if (line := _ends(rows, made, contender))]
    lines += [_undisturbed(rows, made)]
    lines += [_lost(rows, made, fault) for fault in (Fault.KILL, Fault.SAVE, Fault.TORN, Fault.STOP)]
    lines += [_seconds(made)]
    return [line for line in lines if line]


def _ends(rows: Rows, made: Iterable[Row], contender: Contender) -> str:
    hers = [one for one in made if one.contender == contender.name and one.fault != Fault.NONE.value]
    if not hers:
        return ""
    same = sum(rows.verdict(one) is Verdict.SAME for one in hers)
    runs = f"{same} of {len(hers)} disturbed runs"
    text = f"{contender.name}: {runs} ended like the undisturbed one, bit for bit"
    bad = [f"{words}: {where}" for verdict, words in _BAD.items() if (where := _where(rows, hers, verdict))]
    return "; ".join((text, *bad)) + "."


def _where(rows: Rows, made: Iterable[Row], verdict: Verdict) -> str:
    """``code (fault, fault), code (fault)``."""
    found: dict[str, dict[str, None]] = {}
    for one in made:
        if rows.verdict(one) is verdict:
            found.setdefault(one.code, {})[one.fault] = None
    return ", ".join(f"{code} ({', '.join(faults)})" for code, faults in found.items())


def _undisturbed(rows: Rows, made: Iterable[Row]) -> str:
    ours = [one for one in made if one.fault == Fault.NONE.value and one.contender == CONTENDERS[0].name]
    if not ours:
        return ""
    same = sum(rows.verdict(one) is Verdict.SAME for one in ours)
    return f"Undisturbed, {same} of {len(ours)} codes end with the same line under faultrun and torchrun."


def _lost(rows: Rows, made: Iterable[Row], fault: Fault) -> str:
    """Only of runs that ended right: steps that led elsewhere were not trained twice but lost."""
    parts = []
    for contender in CONTENDERS:
        hers = [one for one in made if (one.fault, one.contender) == (fault.value, contender.name)]
        right = [one.twice for one in hers if rows.verdict(one) is Verdict.SAME]
        if hers:
            steps = f"{span(right)} steps twice" if right else "no steps to count"
            parts.append(f"{contender.name} {len(right)} of {len(hers)} right, {steps}")
    return f"{_CALLED[fault]}: {'; '.join(parts)}." if parts else ""


def span(numbers: Sequence[int]) -> str:
    """``5``, or ``4 to 6``."""
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


_CALLED = {
    Fault.KILL: "A rank killed between two saves",
    Fault.SAVE: "A rank killed while it saves",
    Fault.TORN: "The newest checkpoint torn",
    Fault.STOP: "SIGTERM and the same command again",
}


def _seconds(made: Iterable[Row]) -> str:
    """The medians of the codes, from least to most; ratios to torchrun code by code."""
    kills = [one for one in made if one.fault == Fault.KILL.value and one.after_s is not None]
    medians: dict[str, dict[str, float]] = {}
    for contender in CONTENDERS:
        for code in dict.fromkeys(one.code for one in kills):
            own = (one for one in kills if (one.code, one.contender) == (code, contender.name))
            seconds = [one.after_s or 0.0 for one in own]
            if seconds:
                medians.setdefault(contender.name, {})[code] = statistics.median(seconds)
    parts = []
    for name, of_code in medians.items():
        text = f"{name} {_between(of_code.values(), 2)} s"
        rival = medians.get(TORCHRUN.name, {})
        times = [rival[code] / seconds for code, seconds in of_code.items() if code in rival]
        if name != TORCHRUN.name and times:
            text += f" (torchrun takes {_between(times, 1)} times as long)"
        parts.append(text)
    said = "From the kill of a rank to the next step, median of each code"
    return f"{said}: {'; '.join(parts)}." if parts else ""


def _between(numbers: Iterable[float], digits: int) -> str:
    ordered = [f"{number:.{digits}f}" for number in sorted(numbers)]
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"
