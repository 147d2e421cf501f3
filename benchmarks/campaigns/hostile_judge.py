"""Which promises a hostile history broke, from the ranks' own ledger, the journal and the report."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from benchmarks.campaigns.hostile_plan import End
from benchmarks.campaigns.hostile_run import STEP_S, STOP_GRACE_S, Ended, Told, report_of
from benchmarks.harness import journal
from benchmarks.harness.launchers import LOG_DIR

_KEPT = 3
"""Periodic files that each rank leaves on the disk, as the job has it."""

_WRONG = 9
_LATE_S = 3.0
_CODES = {
    End.FINISH: {0},
    End.TERM: {143},
    End.TERM_TWICE: {143},
    End.TERM_HUP: {143, 129},  # the kernel hands two that wait to a busy process by their numbers
    End.PRESTOP: {143},
    End.KILL: {137},
}
_REFUSED = {65}
_NEAR_S = {"sdk": 0.5, "none": 1.5}
"""How exact a recovery is told: a rank that says its steps does so at once, a log is read now and then."""

_NEAR_SHARE = 0.2
_TEARDOWN_S = 0.2
"""From the last step to the end of the processes, once a run: too short to be told apart from a step."""

Note = dict[str, Any]


def broken(told: Told, crowding: float = 1.0) -> list[str]:
    """What was promised and not kept, in words; empty when all was. ``crowding`` is that of the machine."""
    notes = told.ledger()
    lines = journal.read(told.folder)
    return [
        *_sessions(told.ended, notes, crowding),
        *_resumes(told, notes, lines),
        *_incidents(told, lines),
        *_numbers(told, notes, crowding),
    ]


def _sessions(ended: list[Ended], notes: list[Note], crowding: float) -> Iterator[str]:
    finished = {note["rank"] for note in notes if note["what"] == "final"}
    for number, one in enumerate(ended):
        name = f"session {number}"
        if one.overdue:
            yield f"{name}: {one.overdue}"
        if one.orphans:
            yield f"{name}: {one.orphans} orphans"
        allowed = {*_REFUSED, 143} if one.folder_gone else _CODES[one.end]
        if one.exit_code not in allowed and not (one.exit_code == 0 and finished):
            yield f"{name} ended with {one.exit_code}"
        if one.stop_took_s is not None and one.stop_took_s > STOP_GRACE_S + _LATE_S * crowding:
            yield f"{name} took {one.stop_took_s:.1f} s to stop"
    if not finished:
        yield "the training never came to its end"


def _resumes(told: Told, notes: list[Note], lines: list[dict[str, Any]]) -> Iterator[str]:
    """No life begins before what was saved in time and is still there."""
    lives = sorted({int(note["life"]) for note in notes})
    for life in lives:
        begins = _of(notes, "begin", life=life)
        if not begins or life == lives[0]:
            continue
        if len({note["step"] for note in begins}) > 1:
            yield f"life {life} began at steps {sorted({note['step'] for note in begins})}"
        first = min(begins, key=lambda note: note["at_s"])
        there = _newest_there(told, notes, lines, life, first["at_s"])
        if first["step"] < there:
            yield f"life {life} began at step {first['step']} although step {there} was saved"
        promised = _promised(told, notes, life - 1)
        if first["step"] < promised:
            yield f"life {life} began at step {first['step']}, step {promised} should have been saved"


def _newest_there(
    told: Told, notes: list[Note], lines: list[dict[str, Any]], life: int, before_s: float
) -> int:
    """The newest save that was reported before this life and not ruined by the campaign."""
    ruined = {path for at_s, path in told.shelf.spoiled if at_s < before_s}
    steps = [-1]
    for rank in range(told.history.workers):
        saves = [note for note in _of(notes, "save", rank=rank) if note["at_s"] < before_s]
        steps += [note["step"] for note in saves[-_KEPT:] if note["path"] not in ruined]
    for line in journal.of(lines, "GaspSaved"):
        path = str(told.folder / str(line["path"]))
        if line["incarnation"] < life and path not in ruined:
            steps.append(int(line["step"]))
    return max(steps)


def _promised(told: Told, notes: list[Note], life: int) -> int:
    """The step that survivors of ``life`` had to save when a peer died; -1 when nothing was promised."""
    struck = {rank for _, of_life, rank in told.blows if of_life == life}
    survivors = set(range(told.history.workers)) - struck
    if told.history.guard != "sdk" or not struck or not survivors or told.shelf.spoiled:
        return -1
    return min(_reached(_of(notes, "step", life=life, rank=rank), -1) for rank in survivors) - 1


def _of(notes: list[Note], what: str, **of: int) -> list[Note]:
    """Those that say ``what``, of this life, of this rank."""
    return [note for note in notes if note["what"] == what and of.items() <= note.items()]


def _reached(notes: list[Note], at_least: int) -> int:
    return max((note["step"] for note in notes), default=at_least)


def _incidents(told: Told, lines: list[dict[str, Any]]) -> Iterator[str]:
    """A rank that nobody struck is never called faulty."""
    drained = len(list((told.folder / LOG_DIR).glob("incident_*.json")))
    if drained > len(told.blows):
        yield f"{drained} incidents, but only {len(told.blows)} blows"
    if journal.of(lines, "HangDetected"):
        yield "a healthy training was called hung"


def _numbers(told: Told, notes: list[Note], crowding: float) -> Iterator[str]:
    """What the report says and the ledger knows better; "unknown" (null) is an honest answer."""
    report = report_of(told.folder)
    if not report:
        yield "there is no report"
        return
    incidents = report["incidents"]
    if report["incidents_total"] != len(told.blows):
        yield f"the report has {report['incidents_total']} incidents, there were {len(told.blows)} blows"
    share, truth = report["productive_share"], _productive(notes) / max(report["wall_s"], 1e-9)
    near = (0.05 + _TEARDOWN_S / max(report["wall_s"], _TEARDOWN_S)) * crowding
    if share is not None and share > truth + near:
        yield f"the report says {share:.1%} productive, it was {truth:.1%}"
    for incident, (at_s, life, _) in zip(incidents, told.blows, strict=False):
        yield from _recovery(incident, at_s, life, told, notes, crowding)


def _recovery(
    incident: dict[str, Any], at_s: float, life: int, told: Told, notes: list[Note], crowding: float
) -> Iterator[str]:
    steps = (_of(notes, "step", life=life + 1, rank=rank) for rank in range(told.history.workers))
    firsts = [min((note["at_s"] for note in of), default=None) for of in steps]
    began = [note["step"] for note in _of(notes, "begin", life=life + 1)]
    reached = _reached(_of(notes, "step", life=life), 0)
    name = f"incident {incident['number']}"
    known = [first for first in firsts if first is not None]
    if len(known) == len(firsts) and incident["recovery_s"] is not None:
        true_s = max(known) - at_s
        near_s = _NEAR_S[told.history.guard] * crowding + _NEAR_SHARE * true_s
        if abs(incident["recovery_s"] - true_s) > near_s:
            yield f"{name}: recovery {incident['recovery_s']:.2f} s in the report, {true_s:.2f} s in truth"
    if began and incident["lost_steps"] is not None:
        lost = max(0, reached - began[0])
        if abs(incident["lost_steps"] - lost) > 1:
            yield f"{name}: {incident['lost_steps']} steps lost in the report, {lost} in truth"


def _productive(notes: list[Note]) -> float:
    """Seconds in which some step was done for the first time."""
    ranks = {note["rank"] for note in notes}
    rank = min(ranks, default=0)
    mine = [note for note in notes if note["rank"] == rank and note["what"] in ("begin", "step")]
    high, seconds = 0, 0.0
    for before, note in pairwise(mine):
        if note["what"] == "step" and note["step"] > high:
            high = note["step"]
            whole = before["what"] == "step" and before["life"] == note["life"]
            seconds += note["at_s"] - before["at_s"] if whole else STEP_S
    return seconds
