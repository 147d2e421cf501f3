"""How far training had come by what a log prints, learnt from which of its numbers goes up with training.

The marks (``step_marks``) at one place of lines that differ in their numbers alone are a series. Training's
is the one beside the loss; of several that still go on the one with most marks, for evaluations are rarer.
Preparation comes to its end, changes its words from line to line, or has no loss beside it. Where no series
is training's for sure nothing is told; nor is a global step where it may count anew in an epoch, and none
knows from where.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from faultrun.core.step_marks import StepMark, read_line

_GUESSED, _PLAIN, _NEAR_LOSS, _LOSS = range(4)
"""How surely a series is training's: not at all, by its name, by losses between its marks, by one in each."""
_ENOUGH = 3
_MOST_SERIES = 64
_BAR_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """A word of a log. ``step`` is global, ``in_epoch`` counts anew in every epoch; None: unknown.

    ``every``: so many steps lie between two that the log told, at most; 0: it told only one.
    """

    step: int | None = None
    epoch: int | None = None
    in_epoch: int | None = None
    every: int = field(default=0, compare=False)


class _Series(NamedTuple):
    """``marks`` that went up, the ``first`` and the newest two, and the newest two of the epoch before.

    ``level``: how surely it is training's. ``alike``: so many lines in a row had the same words. ``even``:
    its marks are equally far apart. ``again``: it began again in one epoch, ``apart``: with a new one.
    ``from_0``: there was an epoch 0. ``losses``: so many lines with one had been printed at its first mark,
    ``until``: and at its last. ``widest``: the most steps between two marks. ``unread``: so many numbers that
    are no whole ones were at its place since its last mark.
    """

    first: StepMark
    last: StepMark
    before: StepMark | None = None
    ended: tuple[StepMark, ...] = ()
    marks: int = 1
    level: int = _GUESSED
    alike: int = 1
    even: bool = True
    again: bool = False
    apart: bool = False
    from_0: bool = False
    losses: int = 0
    until: int = 0
    widest: int = 0
    unread: int = 0

    def is_over(self, losses: int) -> bool:
        """Whether it came to its end, or is silent longer than it spoke: ``losses`` are printed by now."""
        silent = losses - self.until
        return silent >= _ENOUGH if self.last.step == self.last.of else silent > self.until - self.losses + 1

    def speaks(self, *, ended: bool) -> bool:
        """Whether it is training's. Before the log has ``ended`` its name alone proves nothing."""
        last, repeated = self.last, self.marks >= _ENOUGH and self.alike > 1
        if self.unread > 1:  # one may be a time between two steps; of more the newest step is not known
            return False
        match self.level:
            case 3:
                return True
            case 2:
                return self.marks > 1 or ended
            case 1 if last.of is None or last.epoch is not None:
                return repeated or (ended and (not last.wordy or self.alike > 1))
            case _:
                return self.level == _PLAIN and repeated and last.step < (last.of or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsSeen:
    """What was learnt of one log. With a ``pattern`` its matches alone are steps.

    ``epoch`` was named last, ``trained`` first beside a loss, ``part`` is a fraction of one.
    ``losses`` counts lines with one.
    """

    series: Mapping[str, _Series]
    epoch: int | None = None
    trained: int | None = None
    part: float | None = None
    losses: int = 0
    pattern: re.Pattern[str] | None = None

    def first(self, *, ended: bool = True) -> LoggedStep | None:
        """The first step of training; None while none is told for sure."""
        if (best := self._best(ended=ended)) is not None:
            return _told(best, best.first, self.part)
        return None if self.trained is None else LoggedStep(epoch=self.trained)

    def last(self, *, ended: bool = True) -> LoggedStep | None:
        """The newest step; None where none is told, and no epoch either."""
        if (best := self._best(ended=ended)) is not None:
            return _told(best, best.last, self.part)
        return None if self.epoch is None else LoggedStep(epoch=self.epoch)

    def at(self, lines: Iterable[str]) -> LoggedStep | None:
        """The newest step that ``lines``, some of those that were read, tell of; None while none is known."""
        best = self._best(ended=False)
        key = next((key for key, one in self.series.items() if one is best), None)
        if best is None or key is None:
            return None
        found = read(replace(self, series={}), lines).series.get(key)
        return None if found is None else _told(best, found.last, self.part)

    @property
    def at_end(self) -> bool:
        """Whether the newest step is the last of so many: something else comes now, or nothing."""
        best = self._best(ended=False)
        return best is not None and best.last.step == best.last.of

    def _best(self, *, ended: bool) -> _Series | None:
        known = [one for one in self.series.values() if one.speaks(ended=ended)]
        return max(known, key=lambda one: _surest(one, self.losses), default=None)


def unread(pattern: str = "") -> StepsSeen:
    """Nothing of a log has been read. ``pattern``: the lines that tell steps (``--step_pattern``)."""
    return StepsSeen(series={}, pattern=re.compile(pattern) if pattern else None)


def last_step(lines: Sequence[str], pattern: str = "") -> LoggedStep | None:
    """The newest step that ``lines`` (the oldest first) tell of; None when they tell of no epoch either."""
    return read(unread(pattern), lines).last()


def first_step(lines: Sequence[str], pattern: str = "") -> LoggedStep | None:
    """The first step of training that ``lines`` tell of; None when they tell of none."""
    return read(unread(pattern), lines).first()


def read(seen: StepsSeen, lines: Iterable[str]) -> StepsSeen:
    """What is known after ``lines``, the oldest first."""
    series = dict(seen.series)
    epoch, trained, part, losses = seen.epoch, seen.trained, seen.part, seen.losses
    for line in lines:
        if seen.pattern is not None:
            mark = _given(seen.pattern, line)
        else:
            said = read_line(line, epoch)
            mark, losses = said.mark, losses + said.loss
            epoch = epoch if said.epoch is None else said.epoch
            part = part if said.part is None else said.part
            if trained is None and mark is None and said.loss:
                trained = said.epoch
            for key in [one for one in series if said.unread and one.startswith(f"{said.unread}/")]:
                series[key] = series[key]._replace(unread=series[key].unread + 1)
        if mark is not None:
            series[mark.place] = _joined(series.get(mark.place), mark, losses)
            if len(series) > _MOST_SERIES:
                del series[min(series, key=lambda one: series[one].marks)]
    return replace(seen, series=series, epoch=epoch, trained=trained, part=part, losses=losses)


def _surest(series: _Series, losses: int) -> tuple[bool, bool, bool, int, int]:
    """What is beside a loss, begins not again and is not over comes first, then what is most often."""
    near = series.level >= _NEAR_LOSS
    return near, not series.again, not series.is_over(losses), series.marks, series.level


def _given(pattern: re.Pattern[str], line: str) -> StepMark | None:
    """The step of a line that the user's pattern matches."""
    found = pattern.search(line)
    words = {} if found is None else found.groupdict()
    try:
        step = int((words.get("step") or "").replace(",", ""))
        epoch = int(words["epoch"]) if words.get("epoch") else None
    except ValueError:
        return None
    return StepMark(step=step, place="", epoch=epoch, named=True, loss=True)


def _joined(known: _Series | None, mark: StepMark, losses: int) -> _Series:
    """``known`` and the next mark at its place."""
    level = _GUESSED
    if mark.loss and (mark.named or mark.of is not None):
        level = _NEAR_LOSS if mark.other else _LOSS
    elif mark.named or (mark.of is not None and mark.epoch is not None):
        level = _PLAIN
    if known is None:
        return _Series(
            first=mark, last=mark, level=level, from_0=mark.epoch == 0, losses=losses, until=losses
        )
    last, stride = known.last, mark.step - known.last.step
    later = mark.epoch is not None and last.epoch is not None and mark.epoch > last.epoch
    marks = known.marks + (stride != 0 or later)
    even = known.even and stride > 0 and (known.before is None or stride == last.step - known.before.step)
    if mark.named or mark.of is not None:
        near = losses > known.losses and stride > 0 and not mark.loss
        level = max(level, known.level, _NEAR_LOSS if near else _GUESSED)
    elif even and marks >= _ENOUGH and not mark.wordy:
        level = _NEAR_LOSS
    return known._replace(
        last=mark,
        until=losses,
        unread=0,
        widest=max(known.widest, stride),
        before=last if stride else known.before,
        ended=tuple(one for one in (known.before, last) if one is not None) if later else known.ended,
        marks=marks,
        level=level,
        alike=known.alike + 1 if mark.shape == last.shape else 1,
        even=even,
        again=known.again or (stride < 0 and not later and mark.step <= known.first.step),
        apart=known.apart or (later and stride <= 0),
        from_0=known.from_0 or mark.epoch == 0,
    )


def _told(series: _Series, mark: StepMark, part: float | None) -> LoggedStep:
    """The word that ``mark`` is: a global step only where it cannot be another."""
    anew = not mark.whole and (mark.anew or series.again or series.apart)
    if not anew and not mark.named and mark.of is not None:
        # A bar over all epochs is the same in the first; later its share is not the epoch's.
        anew = part is None or (part >= 1 and abs(part % 1 - mark.step / (mark.of or 1)) <= _BAR_SHARE)
    if not anew:
        return LoggedStep(step=mark.step, epoch=mark.epoch, every=series.widest)
    return LoggedStep(step=_global(series, mark), epoch=mark.epoch, in_epoch=mark.step, every=series.widest)


def _global(series: _Series, mark: StepMark) -> int | None:
    """Known where it is seen from where both count, and how long an epoch is, unless it is the first."""
    if mark.epoch is None or not mark.anew or not (mark.from_1 or series.from_0):
        return None
    epochs = mark.epoch - 1 if mark.from_1 else mark.epoch
    if epochs <= 0:
        return mark.step if epochs == 0 else None
    length = mark.of or _seen_length([one for one in series.ended if one.epoch == mark.epoch - 1])
    return None if length is None else epochs * length + mark.step


def _seen_length(epoch: Sequence[StepMark]) -> int | None:
    """Steps of an epoch whose every step was printed at its end, at least."""
    if not epoch:
        return None
    whole = epoch[-1].step == 1 or (len(epoch) > 1 and epoch[-1].step - epoch[-2].step == 1)
    return epoch[-1].step if whole else None
