"""The losses that a log prints, by the step that its line names: what two trainings are compared by."""

import math
import re
from collections.abc import Iterable, Mapping

from faultrun.core.logged_steps import last_step

_LOSS = re.compile(
    r"(?<![A-Za-z_])(?:train(?:ing)?[_ ])?loss\b['\"]?\s*(?:is\b|[:=])?\s*"
    r"(?P<loss>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf)\b",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"\b(?:val(?:id(?:ation)?)?|eval(?:uat(?:ion|ing))?|test(?:ing)?|held-out)\b", re.IGNORECASE
)
_PART_OF_EPOCH = re.compile(r"['\"]?\bepoch['\"]?\s*[:=]\s*['\"]?(?P<epoch>\d+\.\d+)", re.IGNORECASE)

LossPlace = str
"""A step as a log names it, such as ``step 12``, ``epoch 2 step 5`` or ``epoch 0.53``."""


def losses_of(lines: Iterable[str]) -> dict[LossPlace, float]:
    """The loss that ``lines`` print for each place; of several for one place the last."""
    found: dict[LossPlace, float] = {}
    for line in lines:
        loss = None if _BESIDE.search(line) else _LOSS.search(line)
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
