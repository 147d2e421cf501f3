"""A rehearsal for people and for programs: the table, the grade, and the same as JSON. Pure."""

from collections.abc import Sequence
from typing import Any

from faultrun.rehearse.grade import Grade, grade
from faultrun.rehearse.outcome import Fate, Likeness, RehearsalOutcome, Tried

_HEAD = ("fault", "survived", "steps lost", "training again", "resumed from", "losses after it")
_WORDS = {Fate.SURVIVED: "yes", Fate.LOST: "NO", Fate.NOT_TRIED: "not tried"}
_CHANGED_SHOWN = 20


def page(found: RehearsalOutcome) -> str:
    """The whole answer, but for the changes that are proposed."""
    judged = grade(found)
    parts = ["\n".join(_table([_HEAD, *map(_row, found.tried)]))]
    notes = [f"  {one.trial.title}: {one.note}" for one in found.tried if one.note]
    if notes:
        parts.append("\n".join(notes))
    first = [found.undisturbed.first_save] if found.undisturbed.first_save else []
    parts += [*first, _graded(judged), _kept(found)]
    return "\n\n".join(parts)


def as_json(found: RehearsalOutcome) -> dict[str, Any]:
    """For ``--json``."""
    judged, part = grade(found), found.undisturbed
    return {
        "grade": judged.letter.name if judged.letter.name != "NONE" else None,
        "complete": judged.whole,
        "survived": found.survived,
        "reasons": list(judged.reasons),
        "found": [ailment.value for ailment in found.ailments],
        "faults": [_object(one) for one in found.tried],
        "undisturbed": {
            "trained_s": round(part.trained_s, 3),
            "first_step_s": _rounded(part.first_step_s),
            "last_step": part.last_step,
            "first_save_s": _rounded(part.first_save_s),
            "save_every_s": _rounded(part.save_every_s),
            "saves_seen": len(part.saves),
            "first_save": part.first_save or None,
            "exit_code": part.exit_code,
        },
        "isolation": found.isolation,
        "files_checked": found.watched,
        "changed": list(found.changed),
        "minutes": found.minutes,
        "took_s": round(found.took_s, 3),
    }


def _object(one: Tried) -> dict[str, Any]:
    return {
        "fault": one.trial.value,
        "what": one.trial.title,
        "outcome": one.fate.value,
        "steps_lost": one.lost_steps,
        "training_again_s": _rounded(one.again_s),
        "resumed_from": one.resumed or None,
        "losses": one.losses.likeness.value,
        "losses_compared": one.losses.compared,
        "losses_why": one.losses.words or None,
        "found": [ailment.value for ailment in one.ailments],
        "note": one.note or None,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _row(one: Tried) -> tuple[str, ...]:
    if one.fate is Fate.NOT_TRIED:
        return (one.trial.title, _WORDS[one.fate], "", "", "", "")
    return (
        one.trial.title,
        _WORDS[one.fate],
        "?" if one.lost_steps is None else str(one.lost_steps),
        "-" if one.again_s is None else f"{one.again_s:.1f} s",
        one.resumed or "-",
        _losses(one),
    )


def _losses(one: Tried) -> str:
    if one.life < 0 or one.fate is not Fate.SURVIVED:
        return "-"
    check = one.losses
    match check.likeness:
        case Likeness.SAME:
            return f"the same ({check.compared} compared)"
        case Likeness.DIFFER:
            return f"DIFFER {check.words.partition(';')[0]}"
        case Likeness.UNSEEDED:
            return f"could not be compared: {check.words}"
        case Likeness.UNKNOWN:
            return f"unknown: {check.words}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def _graded(judged: Grade) -> str:
    meaning = judged.letter.value if judged.whole else f"{judged.letter.value} (of those that were tried)"
    return "\n".join([f"grade {judged.words}: {meaning}", *(f"  - {reason}" for reason in judged.reasons)])


def _kept(found: RehearsalOutcome) -> str:
    if not found.changed:
        return (
            f"your files are exactly as they were: {found.watched} compared by digest before and after; "
            f"{found.isolation}"
        )
    shown = [f"  {path}" for path in found.changed[:_CHANGED_SHOWN]]
    more = len(found.changed) - len(shown)
    head = f"WARNING: {len(found.changed)} of your files are NOT as they were before the rehearsal:"
    tail = [f"  ... and {more} more"] if more > 0 else []
    return "\n".join([head, *shown, *tail, "  Another process that works there may have done that."])
