"""How far training had come by what a log prints: LossMonitor, Lightning, MindFormers and hand-written loops.

A step that is counted anew in every epoch is not a global step; it becomes
one only where the length of an epoch is seen.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

_STEP = re.compile(
    r"\b(?P<whole>global[_ ])?step\b\s?[:=]?\s*\[?\s*(?P<step>\d{1,15})\b(?!\.\d)"
    r"(?:\s*/\s*(?P<of>\d{1,15})\])?",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"\bepoch\b\s?[:=]?\s*\[?\s*(?P<epoch>\d{1,9})\b(?!\.\d)", re.IGNORECASE)
_NOT_TRAINING = re.compile(
    r"\b(load|resum|restor|recover|checkpoint|ckpt|sav|start|begin|from|total|max|warm|every|per|num|config)",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"\b(?:val(?:id(?:ation)?)?|eval(?:uat(?:ion|ing))?|test(?:ing)?|predict(?:ion|ing)?|infer(?:ence)?"
    r"|sanity(?: check(?:ing)?)?|warm-?up)[\s:_/|,\]-]*(?:global[ _])?step\b",
    re.IGNORECASE,
)
_BESIDES = ("val", "test", "pred", "nfer", "san", "warm")
"""One of these is in all that it finds; the logs of all ranks are read while all nodes wait.

None has an i: ``re`` takes a dotless one for it where case does not matter, and ``casefold`` does not.
"""
_LOSS_MONITOR = re.compile(r"^epoch: \d+ step: \d+, loss is ")
"""mindspore/train/callback/_loss_monitor.py: both count from 1, the step anew in every epoch."""


_LOSS = re.compile(
    r"(?<![A-Za-z_])(?:train(?:ing)?[_ ])?loss\b['\"]?\s*(?:is\b|[:=])?\s*"
    r"(?P<loss>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf)\b",
    re.IGNORECASE,
)
_OTHER_LOSS = re.compile(
    r"\b(?:val(?:id(?:ation)?)?|eval(?:uat(?:ion|ing))?|test(?:ing)?|held-out)\b", re.IGNORECASE
)
_PART_OF_EPOCH = re.compile(r"['\"]?\bepoch['\"]?\s*[:=]\s*['\"]?(?P<epoch>\d+\.\d+)", re.IGNORECASE)

LossPlace = str
"""A step as a log names it, such as ``step 12``, ``epoch 2 step 5`` or ``epoch 0.53``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """The last word of a log. ``step`` is global, ``in_epoch`` counts anew in every epoch; None: unknown."""

    step: int | None = None
    epoch: int | None = None
    in_epoch: int | None = None


class _Entry(NamedTuple):
    step: int
    epoch: int | None
    whole: bool
    anew: bool
    epoch_steps: int | None


def last_step(lines: Sequence[str]) -> LoggedStep | None:
    """The newest step that ``lines`` (the oldest first) tell of; None when they tell of no epoch either."""
    entries: list[_Entry] = []
    epoch: int | None = None
    for line in lines:
        small = line.casefold()
        named = _EPOCH.search(line) if "epoch" in small else None
        epoch = int(named["epoch"]) if named is not None else epoch
        found = _STEP.search(line) if "step" in small else None
        if found is None or (any(word in small for word in _BESIDES) and _BESIDE.search(line)):
            continue
        of = int(found["of"]) if found["of"] is not None and named is not None else None
        anew = of is not None or (named is not None and _LOSS_MONITOR.match(line) is not None)
        entries.append(_Entry(int(found["step"]), epoch, bool(found["whole"]), anew, of))
    if not entries:
        return None if epoch is None else LoggedStep(epoch=epoch)
    last = entries[-1]
    if last.whole or not (last.anew or _begins_anew(entries)):
        return LoggedStep(step=last.step, epoch=last.epoch)
    return LoggedStep(step=_global(entries), epoch=last.epoch, in_epoch=last.step)


def first_step(lines: Sequence[str]) -> LoggedStep | None:
    """The first step of training that ``lines`` tell of; None when they tell of none yet.

    Words about loading, saving and settings name steps, too, that nobody is doing.
    """
    epoch: int | None = None
    for line in lines:
        if _NOT_TRAINING.search(line) or _BESIDE.search(line):
            continue
        named, found = _EPOCH.search(line), _STEP.search(line)
        if named is not None and found is None:
            epoch = int(named["epoch"])
            if "loss" in line.lower():
                return LoggedStep(epoch=epoch)
        elif found is not None:
            return last_step([line if epoch is None or named is not None else f"epoch {epoch} {line}"])
    return None


def names_epoch(line: str) -> bool:
    """Whether the steps below ``line`` may be of the epoch that it names."""
    return _EPOCH.search(line) is not None


def _begins_anew(entries: Sequence[_Entry]) -> bool:
    """Whether the step went back while the epoch went on."""
    return any(
        before.epoch is not None
        and after.epoch is not None
        and after.epoch > before.epoch
        and after.step <= before.step
        for before, after in pairwise(entries)
    )


def _global(entries: Sequence[_Entry]) -> int | None:
    """Known where both count from 1 and the length of an epoch is told, seen, or not needed yet."""
    last = entries[-1]
    if not last.anew or last.epoch is None or last.epoch < 1:
        return None
    if last.epoch == 1:
        return last.step
    length = last.epoch_steps or _seen_length([one for one in entries if one.epoch == last.epoch - 1])
    return None if length is None else (last.epoch - 1) * length + last.step


def _seen_length(epoch: Sequence[_Entry]) -> int | None:
    """Steps of an epoch whose every step was printed at its end, at least."""
    if not epoch:
        return None
    whole = epoch[-1].step == 1 or (len(epoch) > 1 and epoch[-1].step - epoch[-2].step == 1)
    return epoch[-1].step if whole else None


def losses_of(lines: Iterable[str]) -> dict[LossPlace, float]:
    """The loss that ``lines`` print for each place; of several for one place the last."""
    found: dict[LossPlace, float] = {}
    for line in lines:
        loss = None if _OTHER_LOSS.search(line) else _LOSS.search(line)
        place = place_in(line) if loss is not None else ""
        if loss is not None and place:
            found[place] = float(loss["loss"])
    return found


def place_in(line: str) -> LossPlace:
    """The place in training that one line names; empty if it names none."""
    step = last_step([line])
    if step is not None and (step.step is not None or step.in_epoch is not None):
        number = step.step if step.in_epoch is None else step.in_epoch
        return f"step {number}" if step.epoch is None else f"epoch {step.epoch} step {number}"
    part = _PART_OF_EPOCH.search(line)
    return f"epoch {part['epoch']}" if part is not None else ""


def widest(
    one: Mapping[LossPlace, float], other: Mapping[LossPlace, float]
) -> tuple[LossPlace, float] | None:
    """Where both printed and differ most, and by how much; None where no place is in both."""
    shared = [place for place in one if place in other]
    apart = {place: _apart(one[place], other[place]) for place in shared}
    if not apart:
        return None
    place = max(shared, key=lambda one: apart[one])
    return place, apart[place]


def _apart(one: float, other: float) -> float:
    if math.isnan(one) and math.isnan(other):
        return 0.0
    difference = abs(one - other) if one != other else 0.0
    return math.inf if math.isnan(difference) else difference
