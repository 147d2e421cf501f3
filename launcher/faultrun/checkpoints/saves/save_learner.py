"""What one save of a training is, learned from the files that it is seen to write. Pure.

Files are put together until one of them comes again: with another number in its name, or under the same name
where that has none. A late file joins the save whose number it bears.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from faultrun.checkpoints.names import base_name, forget_names, is_unfinished
from faultrun.checkpoints.reading import comparable
from faultrun.checkpoints.saves.growing_save import AT_ONCE, GrowingSave, without_copies
from faultrun.checkpoints.saves.save_names import (
    by_name,
    inside,
    is_of_a_save,
    kind_of_file,
    masked,
    masked_number,
    of_any_rank,
    parts_among,
    shards_in,
)
from faultrun.model.observed.saves import KEPT, MOST_FILES, NOTHING_SEEN, SavesSeen, SeenSave

_LATE, _MOST_CONTENTS = 2, 4096
"""Saves that may be written before one that was begun is; files, and contents, that are remembered."""


class SaveLearner:
    """Keeps the newest saves below ``roots``. ``known`` is what an earlier supervisor had learned.

    ``elsewhere`` is what all nodes of a run of several have seen together by now.
    """

    def __init__(self, known: SavesSeen, roots: Sequence[str]) -> None:
        self._known = known
        self._roots = roots
        self._shards = shards_in(known.saves, roots)
        self._saves, self._writes, self._began = [self._grown(one) for one in known.saves], 0, 0
        self._digests = {save.path(name): one for save in self._saves for name, one in save.digests.items()}
        self._contents: dict[str, int] = {}
        self.elsewhere, self._goes_on, self._newest = NOTHING_SEEN, True, ""

    def _grown(self, save: SeenSave) -> GrowingSave:
        found = GrowingSave(step=save.step, late=save.late, ranks={*save.ranks})
        found.moved = dict(zip(save.files, save.paths, strict=False))
        found.digests = dict(zip((*save.files, *save.ranks), save.digests, strict=False))
        return self._called(found, save.files)

    def begins_life(self, *, kept: bool = False) -> None:
        """The next file begins a new save: none lasts over a restart of all, unless its number says so."""
        self._goes_on, self._began = self._goes_on and kept, self._began if kept else self._writes

    @property
    def seen(self) -> SavesSeen:
        """What is known now of what is written here; of a save of many ranks or files only some are named."""
        saves = [self._told(one) for one in self._saves if not one.copy_of]
        return replace(self._known, saves=tuple(saves[-KEPT:]))

    def _told(self, save: GrowingSave) -> SeenSave:
        files = tuple(save.files.values())[:MOST_FILES]
        ranks = tuple(sorted(save.ranks)) if len(save.ranks) <= MOST_FILES else ()
        paths = tuple(map(save.path, files))
        digests = tuple(save.digests.get(one, "") for one in (*files, *ranks))
        return SeenSave(
            files=files,
            step=save.step,
            number=max(save.numbers, default=None),
            late=save.late,
            lie=paths if paths != files else (),
            digests=digests if any(digests) else (),
            ranks=ranks,
        )

    @property
    def seen_anywhere(self) -> SavesSeen:
        """The saves of ``seen`` with what other nodes write under one name: none is said to lack it.

        A file with a number in its name is known by that number.
        """
        own, beside = self.seen, dict[str, str]()
        written = {self._kind(path)[0] for one in own.saves for path in one.files}
        for path in (path for one in self.elsewhere.saves for path in one.files):
            kind, number = self._kind(path)
            if number is None and kind not in written:
                beside[kind] = path
        saves = own.saves or (SeenSave(files=()),) if beside else own.saves
        saves = tuple(replace(one, files=(*one.files, *beside.values())) for one in saves)
        return replace(own, saves=saves, opened=own.opened or self.elsewhere.opened)

    def _kind(self, path: str) -> tuple[str, int | None]:
        return kind_of_file(inside(path, self._roots), self._shards)

    @property
    def kinds(self) -> frozenset[str]:
        """What the files of the last two saves are called but for their numbers."""
        return frozenset[str]().union(*(one.files for one in self._saves[-2:]))

    def knows(self, path: str, *, resumed: bool) -> bool:
        """Whether what is written before a step is told is a save, as others (``resumed``: earlier) were."""
        known = {kind for one in self._saves for kind in one.files}
        before = (*self._known.past, *(self._known.prepared if resumed else ()))
        return self._kind(path)[0] in known.union(self._kind(one)[0] for one in before)

    def saved_at(self, save: GrowingSave, path: str, step: int | None, digest: str = "") -> None:
        """Note how far training was when ``path`` was written, which ``save`` took, and what is in it.

        A save that has the file already, and training is there again, is made anew: it is the newest by then.
        Saves stand in the order of their writing, however late it is asked at which step that was.
        """
        again = save.again.pop(path, 0)
        save.pending.discard(path)
        path = path if path in save.files.values() else save.path(path)
        new = self._digests.pop(path, "") != digest or not digest
        save = save if again else self._holder(save, path, step, new=new)
        self._digests[path] = digest
        if step is None or save.step is None:
            save.step = step if save.step is None else save.step
            if again and new and save is not self._saves[-1]:
                self._once_more(path, step, again, new=True)
        elif again and step <= save.step and save in self._saves:
            if new:
                save.step, save.at = step, again
                self._keep()
            save.due = (save.due or frozenset(save.files.values())) - {path}
        elif again and self._is_old(save, path):
            save.late = True  # stripped, or given its score, behind the next one
        elif step > save.step + AT_ONCE and again and not (path in save.due and save is self._saves[-1]):
            self._once_more(path, step, again, new=new)
        elif save in self._saves and (step > save.step + AT_ONCE or self._begin_again(save, step)):
            self._split(save, path, step)
        if step is not None and save in self._saves and not again:
            self._put_back(save, path, step)
        self._learn_shards()
        holder = next((one for one in self._saves[::-1] if path in {*one.files.values(), *one.ranks}), save)
        holder.digests[path] = digest
        self._saves = without_copies(self._saves)
        if self._contents.setdefault(digest, holder.at) != holder.at and digest:
            self._leave_out(holder, path, digest)
        if not any(one.pending or one.again for one in self._saves):
            self._leave_old()
        forget_names()

    def _holder(self, save: GrowingSave, path: str, step: int | None, *, new: bool) -> GrowingSave:
        """The save that has ``path``: it may have gone with another rank's file, or be noted twice."""
        held = [one for one in self._saves[::-1] if path in {*one.files.values(), *one.ranks}]
        save = held[0] if held and (save not in held or held[0].is_at(step)) else save
        if new or save not in held[:1] or not any(one.is_at(step) for one in held[1:2]):
            return save
        self._saves.remove(save)
        return held[1].with_all_of(save)

    def _is_old(self, save: GrowingSave, path: str) -> bool:
        """Whether a file of a save of this life has a step for its number, and a later one a larger."""
        number = self._kind(path)[1]
        newer = self._saves[self._saves.index(save) + 1 :] if save in self._saves else []
        counts = number is not None and save.is_at(number) and save.at > self._began
        return counts and any(max(one.numbers, default=0) > (number or 0) for one in newer)

    def _put_back(self, save: GrowingSave, path: str, step: int) -> None:
        """A save whose number is a step between those of saves before it was begun when its turn was."""
        kind, number = self._kind(path)
        before = self._saves[: self._saves.index(save)]
        steps = [one for one in before if kind in one.files and any(map(one.is_at, one.numbers))]
        later = [one for one in steps if number is not None and max(one.numbers) > number]
        new = not any(number in one.numbers for one in before)
        turn = 0 < len(later) <= _LATE and len(later) < len(steps)
        if number is not None and new and turn and step > number + AT_ONCE:
            save.step, save.at, save.late = number, later[0].at, True
            self._saves.remove(save)
            self._saves.insert(self._saves.index(later[0]), save)

    def _leave_out(self, save: GrowingSave, path: str, digest: str) -> None:
        """What holds the contents of a save that is not kept any more is a copy of that, and no save."""
        if any(digest in one.digests.values() for one in self._saves if one is not save):
            return
        save.files = {kind: one for kind, one in save.files.items() if one != path}
        self._saves = [one for one in self._saves if one.files]

    def met_again(self, digests: Mapping[str, str]) -> None:
        """Unwatched files with other ``digests``, the newest last, are newer saves: two, if out of turn."""
        whole = max(self._saves[:-3:-1], key=lambda one: len(one.files), default=GrowingSave())
        turns = {kind: turn for turn, kind in enumerate(whole.files)}
        newer = self._saves[-1] if self._saves else GrowingSave()
        for path, digest in digests.items():
            known = self._digests.get(path, "")
            if comparable(known, digest) and known != digest:
                kind = self._kind(path)[0]
                turn = turns.setdefault(kind, len(turns))
                if any(turns.get(one, 0) >= turn for one in newer.files):
                    newer = GrowingSave(at=self._writes)
                    self._keep(newer)
                newer.files[kind], newer.digests[path], self._digests[path] = path, digest, digest
        self._saves = without_copies(self._saves)

    def moved(self, was: str, path: str) -> bool:
        """A file was moved to ``path``; whether it is of a save, which keeps it and the step of its writing.

        One that is moved as soon as it was written, by a name that no save had, had that for the time being.
        """
        names = ((one, kind, name) for one in reversed(self._saves) for kind, name in one.files.items())
        for save, kind, name in names:
            if save.path(name) == was and not is_unfinished(base_name(path)):
                number, before = self._kind(path)[1], self._kind(was)[1]
                if save.has_had(path, but=name) or (before is None and not save.takes("", number)):
                    self._set_apart(save, kind)
                final = any(name in one.files.values() for one in self._saves if one is not save)
                save.moves(name, path)
                if name in save.pending and not final:
                    save.files[kind] = path
                save.numbers |= set() if number is None else {number}
                return True
        for save in (one for one in reversed(self._saves) if was in one.ranks):
            save.moves(was, path)
            save.ranks = save.ranks - {was} | {path}
            return True
        return False

    def _set_apart(self, save: GrowingSave, kind: str) -> None:
        """A file that takes the place of another of its save begins the next, with what was written since."""
        first = [*save.files].index(kind)
        old = [one for one in [*save.files][:first] if save.files[one] not in save.pending]
        old = old or [*save.files][:first]
        if not old:
            return
        older = replace(save, files={one: save.files.pop(one) for one in old}, pending=set(), again={})
        alike = {*map(of_any_rank, save.files.values())}
        save.ranks = {one for one in save.ranks if of_any_rank(one) in alike}
        older.ranks = older.ranks - save.ranks
        save.step, save.at, save.moved, save.copies, save.digests = None, self._writes, {}, {}, {}
        for one in (older, save):
            numbers = (self._kind(one.path(path))[1] for path in one.files.values())
            one.numbers = {number for number in numbers if number is not None}
        self._keep(older)

    def _once_more(self, path: str, step: int | None, at: int, *, new: bool) -> None:
        """A file that is written again steps later is of a new save, and its number no counter.

        One that is not ``new`` is only of a save that has its number, too.
        """
        (kind, number), newest = self._kind(path), [one for one in self._saves if one.at <= at][-1]
        there = newest.files.get(kind, path)
        joins = newest.is_at(step) and of_any_rank(there) == of_any_rank(path)
        if new and not joins:
            self._keep(GrowingSave(files={kind: path}, step=step, at=at))
        elif joins and (new or number in (self._kind(one)[1] for one in newest.files.values())):
            newest.files.setdefault(kind, path)
            newest.ranks |= {path} - {there}

    def _split(self, save: GrowingSave, path: str, step: int) -> None:
        """A file under one name that comes later, or as steps begin again, begins a save; others are late."""
        (kind, number), rank, again = self._kind(path), path in save.ranks, self._begin_again(save, step)
        kind = next((kind for kind, one in save.files.items() if one == path), kind if rank else "#")
        save.late |= "#" in kind and not again
        if (again or "#" not in kind) and (rank or len(save.files) > 1):
            alike = {path} if rank else {one for one in save.ranks if of_any_rank(one) == of_any_rank(path)}
            save.files = {one: there for one, there in save.files.items() if there != path}
            after = self._saves.index(save) + 1
            beside = [one for one in self._saves[after:] if one.is_at(step) and one.takes(kind, number)]
            other = beside[0] if beside else GrowingSave(step=step, at=self._writes if again else save.at)
            there = save.path(path)
            other.moved |= {name: where for name, where in save.moved.items() if where == there}
            other.files[kind] = path
            save.ranks, other.ranks = save.ranks - alike, other.ranks | (alike - {path})
            other.numbers |= set() if number is None else {number}
            self._saves[after:after] = [] if beside else [other]
            self._keep()

    def _begin_again(self, save: GrowingSave, step: int) -> bool:
        """Whether a step after an older save was written is below that of the newest one of this life."""
        newest = self._saves[-1]
        return save is not newest and newest.at > self._began and step + AT_ONCE < (newest.step or 0)

    def _learn_shards(self) -> None:
        """Files that came at one step, and differ in a number beside the one that counts, are of one save."""
        of_life = (one for one in self._saves if one.at > self._began and one.step is not None)
        runs = [[*run] for _, run in groupby(of_life, key=lambda one: one.step)]
        for run in (one for one in runs if len(one) > 1):
            every = by_name((one.files.values() for one in self._saves), self._roots)
            for name, alike in by_name((one.files.values() for one in run), self._roots).items():
                if parts := parts_among(alike, every[name], run[0].step):
                    self._shards[name] = self._shards.get(name, set()) | parts
            for one in run[1:]:
                files = [*run[0].files.values(), *one.files.values()]
                kinds = dict(map(self._kind, files))
                shards = any(map(self._shards.get, by_name([one.files.values()], self._roots)))
                if shards and len(kinds) == len(files) and len({*kinds.values()} - {None}) < 2:
                    self._called(run[0], files).moved |= one.moved
                    run[0].digests |= one.digests
                    self._saves.remove(one)
                    self._saves = [self._called(two, [*two.files.values()]) for two in self._saves]

    def _called(self, save: GrowingSave, files: Iterable[str]) -> GrowingSave:
        kinds = [(*self._kind(path), path) for path in files]
        save.files = {kind: path for kind, _, path in kinds}
        save.numbers = {number for _, number, _ in kinds if number is not None}
        return save

    def before_training(self, paths: Iterable[str]) -> None:
        """Note files that were written before a first step: of no save, unless saves have such files."""
        known = frozenset[str]().union(*(one.files for one in self._saves))
        new = (path for path in paths if self._kind(path)[0] not in known)
        prepared = tuple(dict.fromkeys((*self._known.prepared, *new)))[:MOST_FILES]
        self._known = replace(self._known, prepared=prepared)

    def resumed_from(self, opened: Collection[str], chosen: str = "") -> None:
        """Note which file of a save the script opened, as it went on from it: the ``chosen`` one if so."""
        names = {masked(base_name(path)) for save in self.seen.saves for path in (*save.files, *save.lie)}
        first = (chosen, *opened) if chosen in opened else opened
        found = next((name for path in first if (name := masked(base_name(path))) in names), "")
        self._known = replace(self._known, opened=found or self._known.opened)

    def wrote(self, path: str, *, root: str) -> GrowingSave | None:
        """Take note of a file below ``root`` that was written; the save that it is of, None if of none."""
        if not is_of_a_save(path):
            return None
        told = [one for one in self._saves if path == self._newest and path in {*one.pending, *one.again}]
        if told:
            return told[-1]  # as moved and as closed
        self._writes, self._newest = self._writes + 1, path
        kind, number = kind_of_file(path[len(root) :], self._shards)
        counted, any_rank = self._saves[::-1] if number is not None else [], of_any_rank(path)
        same = [one for one in counted if of_any_rank(one.files.get(kind, "")) == any_rank]
        of_number = [one for one in counted if number in one.numbers]
        save = next(iter((*same, *of_number, *self._saves[-1:][: self._goes_on])), None)
        rank = save is not None and number is None and path not in {*save.files.values(), *save.ranks}
        there = save.files.get(kind, "") if save is not None and (rank or save in (*same, *of_number)) else ""
        if save is not None and there == save.path(there) and of_any_rank(there) == any_rank:
            save.again |= {path: self._writes} if path in {there, *save.ranks} - save.pending else {}
            save.ranks |= {path} - {there}
            return save
        if save is not None and save is not self._saves[-1] and not save.has_folder_of(kind):
            save = None  # of a later save that counts anew, unless its contents are those of an older one
        folder = path.rpartition("/")[0] if "#" in kind.rpartition("/")[0] else ""
        files = save.files.values() if save is not None and folder else ()
        inside = any(one.rpartition("/")[0] == folder for one in files)
        if folder and not inside and any(one.rpartition("/")[0] == folder for one in self._known.past):
            return None  # something is put into the folder of an older save
        if save is not None and not inside and self._counts_anew(save, kind):
            save = None
        # What was written before a first step was told is a save, too, once saves have such files.
        left = tuple(one for one in self._known.prepared if self._kind(one)[0] != kind)
        self._known = replace(self._known, prepared=left)
        if save is None or not save.takes(kind, number) or save.has_had(path, but=save.files.get(kind, "")):
            save = GrowingSave(at=self._writes)
            self._forget_seldom()
            self._keep(save)
        self._goes_on = True
        save.files[kind] = path
        save.pending.add(path)
        save.numbers |= set() if number is None else {number}
        save.late = save.late or save is not self._saves[-1]
        return save

    def _keep(self, *new: GrowingSave) -> None:
        """Have all saves in the order of their writing, with ``new`` ones."""
        self._saves = sorted([*self._saves, *new], key=lambda one: one.at)

    def _leave_old(self) -> None:
        """Remember the newest saves, of others only files: the newest, and with which each stage ended."""
        left = (one.path(path) for one in self._saves[:-KEPT] for path in one.files.values())
        past = [*dict.fromkeys([*left, *reversed(self._known.past)])]
        of_place = [(masked_number(path, self._kind(path)[1]), path) for path in past]
        newest = dict(reversed(of_place)).values()
        old = [path for path in past[MOST_FILES:] if path in newest][:MOST_FILES]
        self._known = replace(self._known, past=tuple([*past[:MOST_FILES], *old][::-1]))
        self._saves = self._saves[-KEPT:]
        for remembered in (self._digests, self._contents):
            for oldest in [*remembered][:-_MOST_CONTENTS]:
                del remembered[oldest]

    def _counts_anew(self, save: GrowingSave, kind: str) -> bool:
        """Whether a file with the number of ``save`` is of a later one: it comes too late to be of that."""
        at = self._saves.index(save)
        newest = next((nth for nth, one in reversed([*enumerate(self._saves)]) if kind in one.files), None)
        if newest is None:
            return at < len(self._saves) - 2
        return newest > at and max(self._saves[newest].numbers, default=0) < max(save.numbers, default=0)

    def _forget_seldom(self) -> None:
        """A file under one name that the newest save of this life did not write again is of none."""
        if len(self._saves) > 1 and self._saves[-1].at > self._began:
            *before, newest = self._saves
            files = ((kind, path) for one in before for kind, path in one.files.items())
            once = [path for kind, path in files if kind not in newest.files and "#" not in kind]
            prepared = tuple(dict.fromkeys((*self._known.prepared, *once)))[:MOST_FILES]
            self._known = replace(self._known, prepared=prepared)
