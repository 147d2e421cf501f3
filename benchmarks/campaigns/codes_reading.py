"""The matrix in a few sentences: counts and ranges of what was measured, and nothing else."""

import statistics
from collections.abc import Iterable, Sequence

from benchmarks.campaigns.codes_plan import CONTENDERS, TORCHRUN, Code, Contender, Fault
from benchmarks.campaigns.codes_rows import Row, Rows, Verdict

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
    text = (
        f"{contender.name}: {same} of {len(hers)} disturbed runs ended like the undisturbed one, bit for bit"
    )
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
            seconds = [
                one.after_s or 0.0 for one in kills if (one.code, one.contender) == (code, contender.name)
            ]
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
    return (
        f"From the kill of a rank to the next step, median of each code: {'; '.join(parts)}." if parts else ""
    )


def _between(numbers: Iterable[float], digits: int) -> str:
    ordered = [f"{number:.{digits}f}" for number in sorted(numbers)]
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"
