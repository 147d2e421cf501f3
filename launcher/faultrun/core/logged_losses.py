"""The losses that a log prints, each with the place in training that its line names."""

import math
from collections.abc import Iterable, Mapping

from faultrun.core.step_marks import LOSS, OTHER_LOSS, PART_OF_EPOCH, read_line

LossPlace = str
"""A step as a log names it, such as ``step 12``, ``epoch 2 step 5`` or ``epoch 0.53``."""


def losses_of(lines: Iterable[str]) -> dict[LossPlace, float]:
    """The loss that ``lines`` print for each place; of several for one place the last."""
    found: dict[LossPlace, float] = {}
    for line in lines:
        loss = None if OTHER_LOSS.search(line) else LOSS.search(line)
        place = place_in(line) if loss is not None else ""
        if loss is not None and place:
            found[place] = float(loss["loss"])
    return found


def place_in(line: str) -> LossPlace:
    """The place in training that one line names; empty if it names none."""
    mark = read_line(line, None).mark
    if mark is not None and (mark.named or mark.epoch is not None):
        return f"step {mark.step}" if mark.epoch is None else f"epoch {mark.epoch} step {mark.step}"
    part = PART_OF_EPOCH.search(line)
    return f"epoch {part['epoch']}" if part is not None else ""


def widest(
    one: Mapping[LossPlace, float], other: Mapping[LossPlace, float]
) -> tuple[LossPlace, float] | None:
    """Where both printed and differ most, and by how much; None where no place is in both."""
    shared = [place for place in one if place in other]
    if not (apart := {place: _apart(one[place], other[place]) for place in shared}):
        return None
    place = max(shared, key=lambda one: apart[one])
    return place, apart[place]


def _apart(one: float, other: float) -> float:
    if math.isnan(one) and math.isnan(other):
        return 0.0
    difference = abs(one - other) if one != other else 0.0
    return math.inf if math.isnan(difference) else difference
