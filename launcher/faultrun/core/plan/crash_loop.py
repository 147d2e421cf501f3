"""Whether another attempt can help.

Ending a run for good is dear when it is wrong, so it needs evidence: an error
that is the program's by its nature, met twice at one place, or any failure but
the weather's that stayed the same until the budget was spent.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from faultrun.core.diagnosis.signature_table import NOT_LOADABLE
from faultrun.core.diagnosis.signatures import PROGRAM_ERRORS, REFUSED
from faultrun.core.plan.restart_budget import progressed
from faultrun.core.recovery.quarantine import was_opened
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.evidence import FaultClass
from faultrun.model.plan import Plan

DO_NOT_RESTART = 93
"""Exit code of a run that would fail again wherever it is started."""

_STARTUP_S = 60.0
"""A program that cannot be imported or does not know its arguments fails this soon after its start."""

_ENOUGH = 3
"""Failures alike, without progress, before one whose nature is unclear counts as a crash loop."""

_WEATHER = frozenset({FaultClass.TRANSIENT, FaultClass.PREEMPTION, FaultClass.CONSEQUENCE})
_NEEDS_ANOTHER_PLACE = frozenset({FaultClass.HARDWARE})
_CERTAIN = frozenset({FaultClass.DETERMINISTIC, FaultClass.HARDWARE})
_ROOM_MAY_BE_MADE = "disk-full"
_MEMORY = frozenset({"device-memory", "ascend-memory", "host-memory", "oom-killer", "shared-memory"})


class Nature(Enum):
    """What kind of failure it is: the program's for certain, no program's fault, or either."""

    CERTAIN = "certain"
    UNCLEAR = "unclear"
    WEATHER = "weather"


def saved_step(point: RecoveryPoint | None) -> int:
    """The global step of ``point``; -1 when there is none or it is unknown."""
    return -1 if point is None or point.global_step is None else point.global_step


def hopeless(incident: Incident, plan: Plan, high_step: int, point: RecoveryPoint | None) -> str:
    """Why no restart can help after ``incident`` ended ``plan``; empty when one may.

    ``point`` is where the next incarnation would begin: one that could not be
    got past is left out by then, and an older one deserves its own attempts.
    """
    if _never_loads(incident, plan) and not saved(plan, high_step, point):
        return f"the script cannot load what it saved: {_words(incident)}"
    if nature(incident) is not Nature.CERTAIN:
        return ""
    if incident.finding is not None and incident.finding.name == REFUSED:
        return f"not restarted: the SDK refuses this program, and would again: {_words(incident)}"
    if _before_the_first_step(incident, plan, high_step):
        return "not restarted: it failed before the first step, so it would most likely fail again"
    same_start = _same_start(point, plan.point)
    if _again(incident, plan) and same_start and not progressed(plan.ledger, high_step, point):
        return f"the same failure twice without progress: {_words(incident)}"
    return ""


def saved(plan: Plan, high_step: int, point: RecoveryPoint | None) -> bool:
    """Whether the life saved something, so that it was past loading: a later point, or its file anew."""
    anew = point is not None and plan.point is not None and point.path == plan.point.path
    return progressed(plan.ledger, high_step, point) or (anew and _new_and_mute(point, plan.point))


def _never_loads(incident: Incident, plan: Plan) -> bool:
    """Whether it failed alike as it loaded, from two different checkpoints, or as no file makes it fail.

    Each was whole, and was seen to be opened; no step was done with any.
    """
    now, last, point = incident.signature, plan.ledger.last_signature, plan.point
    if now is None or last is None or (now.what, now.where) != (last.what, last.where) or point is None:
        return False
    if incident.opened is None or incident.raised is None or not was_opened(incident, point):
        return False
    if incident.step is not None and incident.step > saved_step(point):
        return False
    by_nature = incident.finding is not None and incident.finding.name == NOT_LOADABLE
    return by_nature or any(not one.accuses(point.path, point.identity) for one in plan.ledger.attempts)


def exit_code(incident: Incident, own_code: int) -> int:
    """93, unless another machine may do better: then the worker's own code, so that it is tried."""
    return own_code if incident.fault_class in _NEEDS_ANOTHER_PLACE else DO_NOT_RESTART


def nature(incident: Incident) -> Nature:
    """Whether the same program would fail so again; networks, file systems, outside signals are weather."""
    finding, raised = incident.finding, incident.raised
    if incident.fault_class in _WEATHER or (finding is not None and finding.name == _ROOM_MAY_BE_MADE):
        return Nature.WEATHER
    if incident.fault_class in _CERTAIN or incident.cause is Cause.HANG:
        return Nature.CERTAIN
    if finding is not None:
        return Nature.CERTAIN if finding.name in _MEMORY else Nature.UNCLEAR
    certain = raised is not None and raised.kind in PROGRAM_ERRORS
    return Nature.CERTAIN if certain else Nature.UNCLEAR


def alike(incident: Incident, plan: Plan, high_step: int, point: RecoveryPoint | None) -> int:
    """How many failures in a row, ``incident`` included, were alike and without progress between them."""
    now, last = incident.signature, plan.ledger.last_signature
    if now is None or last is None or progressed(plan.ledger, high_step, point):
        return 1
    if _new_and_mute(point, plan.point):
        return 1
    return plan.ledger.alike + 1 if (now.what, now.where) == (last.what, last.where) else 1


def looped(incident: Incident, failures: int, restarts: int) -> str:
    """Why a run whose budget is spent was a crash loop: every attempt of ``restarts`` failed alike.

    Empty where it was not. Trouble outside never is: a later start may find it gone.
    """
    if nature(incident) is Nature.WEATHER or failures < max(_ENOUGH, restarts + 1):
        return ""
    return f"the same failure {failures} times without progress: {_words(incident)}"


def _again(incident: Incident, plan: Plan) -> bool:
    """Whether ``plan`` was made after the very same failure. One that did no step failed where it began."""
    now, last = incident.signature, plan.ledger.last_signature
    if now is None or last is None:
        return False
    began = saved_step(plan.point)
    at_once = now.step is None and began >= 0 and replace(now, step=began).same_as(last)
    return at_once or now.same_as(last)


def _before_the_first_step(incident: Incident, plan: Plan, high_step: int) -> bool:
    """In the first incarnation of the run, and it is known that no step was done.

    Hanging there is mostly the network's doing, which may pass. Where no rank reports steps, an
    error that could have come after hours deserves its second attempt.
    """
    if incident.cause is Cause.HANG:
        return False
    if plan.ledger.total_restarts > 0 or high_step >= 0 or plan.point is not None:
        return False
    early = incident.step is None and incident.at_s - plan.start_at_s < _STARTUP_S
    return incident.unstarted or (incident.fault_class is FaultClass.DETERMINISTIC and early)


def _words(incident: Incident) -> str:
    signature = incident.signature
    if signature is None:
        return incident.explanation
    where = f" at {signature.where}" if signature.where else ""
    step = f", after step {signature.step}" if signature.step is not None else ""
    return f"{signature.what}{where}{step}"


def _same_start(point: RecoveryPoint | None, before: RecoveryPoint | None) -> bool:
    """Whether the next life would begin where this one began; by path where no more is known."""
    if point is None or before is None:
        return point is before
    if point.identity is None or before.identity is None:
        return point.path == before.path
    return point.identity.same_start_as(before.identity)


def _new_and_mute(point: RecoveryPoint | None, before: RecoveryPoint | None) -> bool:
    """Whether a life saved something that says nothing of its progress: perhaps it made some."""
    if point is None or point.identity is None or point.identity.tells:
        return False
    return before is None or before.identity is None or not point.identity.same_as(before.identity)


BAD_CONFIGURATION = 78
"""Exit code of a run whose restart cannot be expressed to the script."""

USAGE = "usage"
"""Name of the row for what argument parsers say (``core.diagnosis.signature_table``)."""

_NAME = re.compile(r"-*[^=\s]+")


def refused_argument(incident: Incident, plan: Plan, templates: Sequence[str]) -> str:
    """The error for a person; empty unless the script cannot take what ``templates`` make of a checkpoint.

    The parser's own words name one of them, or two lives in a row that were given them, and no other, failed
    alike before the first step and opened no checkpoint. ``templates`` are those of ``--resume_arg``.
    """
    if plan.point is None or not templates:
        return ""
    finding = incident.finding
    guilty, because, does = templates[0], "", "does not take an argument"
    if finding is not None and finding.name == USAGE:
        guilty = next((template for template in templates if _names(finding.line, template)), "")
        because = finding.line.strip() if guilty else ""
    elif plan.ledger.unopened == plan.ledger.alike > 0 and unopened_after(incident, plan) > 1:
        because = f"both times it opened no checkpoint and ended before a first step: {_words(incident)}"
        does = "fails, as it seems, on the argument"
    if not because:
        return ""
    return (
        f"the script {does} that a restart gives it: {guilty}\n"
        f"  because: {because}\n"
        "  try:     --resume_arg with the option by which this script resumes; --dry-run shows what it gets"
    )


def unopened_after(incident: Incident, plan: Plan) -> int:
    """How many failures alike in a row, ``incident`` included, opened no checkpoint though one was given.

    None had a cause outside the program, or did a step.
    """
    now, last = incident.signature, plan.ledger.last_signature
    finding, raised = incident.finding, incident.raised
    outside = finding is not None and finding.fault_class is not FaultClass.DETERMINISTIC
    if plan.point is None or now is None or incident.cause is not Cause.EXIT or outside:
        return 0
    if raised is None or raised.kind not in PROGRAM_ERRORS or incident.fault_class in _NEEDS_ANOTHER_PLACE:
        return 0
    if incident.opened is None or incident.opened or incident.step is not None:
        return 0
    again = last is not None and (now.what, now.where) == (last.what, last.where)
    return 1 + (plan.ledger.unopened if again else 0)


def _names(line: str, template: str) -> bool:
    """Whether ``line`` names the option: as it is written, or quoted without its dashes as absl does."""
    found = _NAME.match(template)
    if found is None:
        return False
    name = found[0]
    bare = name.lstrip("-")
    written = rf"(?<![\w/-]){re.escape(name)}(?![\w-])"
    quoted = rf"(['\"]-*){re.escape(bare)}\b"
    return re.search(rf"{written}|{quoted}", line) is not None
