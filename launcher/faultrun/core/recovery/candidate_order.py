"""Which checkpoint is newer, where writers tell different things: a total order of candidates.

A file tells its global step, its epoch, both or neither. Two rules follow:

* Steps count on: the larger global step is newer. A file that tells only its
  epoch stands right behind the last step that is known of an earlier epoch.
* Steps do not count on when the files contradict it: of one writer (series,
  session and kind), a later epoch has no larger step; of two writers, a step is no
  larger two epochs later (one epoch is nothing: some writers count from 0,
  some from 1); those that were seen written one after the other are as of one. Then the later epoch is newer,
  within an epoch the larger step.
  A file that tells only its step is of the newest epoch known to have begun by then.

What a file tells that is kept for its quality says nothing of which is older if no periodic save tells a
step, or an epoch, too: it stands behind them all.

So, where two files of one writer tell both, the greater (epoch, step) is newer. Files that tell neither come
last, by modification time: nowhere else does a clock count, and a name only where the contents are silent. A
name that counts saves says more than the clock: such a file stands behind the save before it. Every file has
one place in one order, so "newer" never runs in a circle. Of saves that the run was seen to write none is
older than one that was written before it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations

from faultrun.model.checkpoint import Entry, Kind

MomentPlace = tuple[int, int, int, int, int]
"""Where a moment of training stands in the order of all: later ones compare greater."""

_PREFERENCE = {Kind.PERIODIC: 0, Kind.GASP: 1, Kind.BEST: 2}
_NO_TIME, _ONLY_EPOCH, _KNOWN = range(3)


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of training with all candidates that claim it; ``last_rank`` is the highest of each series.

    ``place`` is where it stands, the stage first.
    """

    place: tuple[int, ...]
    entries: tuple[Entry, ...]
    last_rank: Mapping[str, int]

    @property
    def written(self) -> int:
        """Which of the saves that were seen it is; 0: of none."""
        return max(one.written for one in self.entries)

    @property
    def is_kept_for_quality(self) -> bool:
        """Whether training may have gone on long before it was written: nothing says how far it is."""
        return all(one.kind is Kind.BEST for one in self.entries)


def moments(entries: Iterable[Entry]) -> list[Moment]:
    """Candidates by the moment of training that they claim, newest first; preferred files first."""
    known = tuple(entries)
    places = _ByEpoch(known) if _steps_start_anew(known) else _ByStep(known)
    together: dict[tuple[int, MomentPlace, str], list[Entry]] = {}
    told = [entry for entry in known if entry.global_step is not None or entry.epoch is not None]
    silent = _places_of_silent(known, {entry.path: places.place(entry) for entry in told})
    for entry in known:
        place = silent.get(entry.path)
        key = (places.place(entry), "") if place is None else (place, entry.save or entry.path)
        together.setdefault((entry.stage, *key), []).append(entry)
    found = _as_written(
        Moment((stage, *place), tuple(sorted(same, key=_preference)), _last_ranks(same))
        for (stage, place, _), alike in together.items()
        for same in _saved_together(alike)
    )
    return sorted(found, key=lambda one: (one.place, one.entries[0].path), reverse=True)


def _saved_together(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """``entries`` of one moment, apart where they were seen to be of two saves; the rest is of the oldest.

    Those that tell their incarnation prove by it which are of one save.
    """
    told = all(one.incarnation is not None for one in entries)
    oldest, *newer = sorted({0 if told else one.written for one in entries} - {0}) or [0]
    yield [one for one in entries if not oldest or one.written in {oldest, 0}]
    yield from ([one for one in entries if one.written == at] for at in newer)


def _as_written(found: Iterable[Moment]) -> Iterator[Moment]:
    """``found``, those that were seen written one after the other in that order, whatever they tell.

    One that is kept for its quality stays where it is, if it tells how far it is; what was written with or
    after it is newer all the same.
    """
    highest: tuple[int, ...] = ()
    for moment in sorted(found, key=lambda one: (one.written, not one.is_kept_for_quality, one.place)):
        if moment.written and moment.is_kept_for_quality and moment.place[1] != _NO_TIME:
            highest = max(highest, moment.place)
            yield moment
        elif not moment.written or moment.place > highest:
            highest = moment.place if moment.written else ()
            yield moment
        else:
            length = len(highest) - (len(highest) > len(moment.place))
            highest = (*highest[:length], moment.written)
            left = _elsewhere(moment.entries)
            there = tuple(one for one in moment.entries if one not in left)
            yield replace(moment, place=highest, entries=there)
            yield from [replace(moment, entries=left, last_rank={})] if left else []


def _elsewhere(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Files that were not seen written and lie apart from those that were: copies of an older save, say."""
    folders = {one.path: one.path.rpartition("/")[0] for one in entries}
    seen = {name for one in entries if one.written for name in (folders[one.path], one.save)} - {""}
    loose = (one for one in entries if not one.written and one.rank is None)
    return tuple(one for one in loose if seen.isdisjoint((folders[one.path], one.save)))


def own_saves(entries: Iterable[Entry], refused: Container[str]) -> list[Entry]:
    """What the training code saved by itself, the newest first, without the paths that were ``refused``."""
    known = [entry for moment in moments(entries) for entry in moment.entries]
    return [entry for entry in known if entry.kind is not Kind.GASP and entry.path not in refused]


def least_preferred(entries: Iterable[Entry]) -> Kind:
    """The kind among ``entries`` that on equal step would be tried last."""
    return max((entry.kind for entry in entries), key=_PREFERENCE.__getitem__)


def _preference(entry: Entry) -> tuple[int, int, int, int, int, int, str]:
    """Which of several files of one step is tried first; names and times only break ties."""
    rank = -1 if entry.rank is None else entry.rank
    newest = -(entry.incarnation or 0), -entry.session, entry.turn
    return _PREFERENCE[entry.kind], *newest, rank, -entry.mtime_ns, entry.path


def _places_of_silent(entries: Iterable[Entry], told: Mapping[str, MomentPlace]) -> dict[str, MomentPlace]:
    """Places by path of those that tell neither step nor epoch.

    One with a number stands behind the save before it, of the same series; others by time of writing.
    """
    before: dict[tuple[str, str], MomentPlace] = {}
    found: dict[str, MomentPlace] = {}
    for entry in sorted(entries, key=lambda one: (one.save_number or 0, one.path)):
        place = told.get(entry.path, (_NO_TIME, entry.saved_ns or entry.mtime_ns, 0, 0, 0))
        if entry.save_number is not None:
            writer = (entry.path.rpartition("/")[0], entry.series)
            if entry.path not in told and writer in before:
                known, at, within, later, last = max(before[writer], place)
                place = (known, at, within, later, last + 1 + entry.save_number)
            before[writer] = max(place, before.get(writer, place))
        if entry.path not in told:
            found[entry.path] = place
    return found


def _last_ranks(entries: Iterable[Entry]) -> dict[str, int]:
    last: dict[str, int] = {}
    for entry in entries:
        if entry.rank is not None:
            last[entry.series] = max(entry.rank, last.get(entry.series, 0))
    return last


def _steps_start_anew(entries: Sequence[Entry]) -> bool:
    """Whether two files show that their writers' steps do not count on from epoch to epoch."""
    both = _telling_both(entries)
    of_one_writer: dict[tuple[str, str, int, Kind], list[tuple[int, int]]] = {}
    for epoch, step, entry in both:
        writer = (entry.format, entry.series, entry.session, entry.kind)
        of_one_writer.setdefault(writer, []).append((epoch, step))
    of_all = [(epoch, step) for epoch, step, _ in both]
    seen = sorted((entry.written, epoch, step) for epoch, step, entry in both if entry.written)
    if any(one[0] < two[0] and one[1] < two[1] and one[2] >= two[2] for one, two in combinations(seen, 2)):
        return True
    return _contradict(of_all, apart=2) or any(_contradict(told, apart=1) for told in of_one_writer.values())


def _contradict(told: Sequence[tuple[int, int]], *, apart: int) -> bool:
    """Whether some (epoch, step) has no larger step than one that lies ``apart`` epochs or more before it."""
    ordered = sorted(told)
    epochs = [epoch for epoch, _ in ordered]
    largest = list(accumulate((step for _, step in ordered), max))
    for epoch, step in ordered:
        if (before := bisect_right(epochs, epoch - apart)) and largest[before - 1] >= step:
            return True
    return False


class _ByStep:
    """Places while steps count on."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._steps_before = _Latest((epoch, step) for epoch, step, _ in _telling_both(entries))
        periodic = [one for one in entries if one.kind is Kind.PERIODIC]
        self._steps = not periodic or any(one.global_step is not None for one in periodic)
        self._epochs = not periodic or any(one.epoch is not None for one in periodic)

    def place(self, entry: Entry) -> MomentPlace:
        step, epoch, step_in_epoch = entry.global_step, entry.epoch or 0, entry.step_in_epoch or 0
        alike = (self._steps and step is not None) or (self._epochs and entry.epoch is not None)
        if entry.kind is Kind.BEST and not alike:
            return (_NO_TIME, -1, step or 0, epoch, step_in_epoch)
        if step is not None:
            return (_KNOWN, step, 0, 0, 0)
        if (step := self._steps_before.before(epoch)) is None:
            return (_ONLY_EPOCH, epoch, step_in_epoch, 0, 0)
        return (_KNOWN, step, 1, epoch, step_in_epoch)


class _ByEpoch:
    """Places while steps start anew."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._epochs_until = _Latest((step, epoch) for epoch, step, _ in _telling_both(entries))

    def place(self, entry: Entry) -> MomentPlace:
        step = entry.global_step
        if entry.epoch is None:
            step = step or 0
            epoch = self._epochs_until.before(step + 1)
            return (_KNOWN, -1 if epoch is None else epoch, 1, step, 0)
        if step is None:
            return (_KNOWN, entry.epoch, 0, entry.step_in_epoch or 0, 0)
        return (_KNOWN, entry.epoch, 1, step, 0)


class _Latest:
    """Finds the greatest ``what`` among the pairs (when, what) that come before some ``when``."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(pairs)
        self._when = [when for when, _ in ordered]
        self._greatest = list(accumulate((what for _, what in ordered), max))

    def before(self, when: int) -> int | None:
        """None when nothing comes before."""
        count = bisect_left(self._when, when)
        return self._greatest[count - 1] if count else None


def _telling_both(entries: Iterable[Entry]) -> list[tuple[int, int, Entry]]:
    return [
        (entry.epoch, entry.global_step, entry)
        for entry in entries
        if entry.epoch is not None and entry.global_step is not None
    ]
