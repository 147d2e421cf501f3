"""Which checkpoints there are, what they say, and whether a given one is whole.

The effectful half of choosing: names, headers and bytes are read here, once
each, and remembered; ``core/recovery/choose.py`` decides.
"""

import gc
import os
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import nlargest
from itertools import chain, islice
from pathlib import Path

from faultrun.checkpoints.format import Foreign, Format, Listing, Look, Meter, Stamp, Unreadable, no_meter
from faultrun.checkpoints.formats import faultrun_manifest
from faultrun.checkpoints.listing import Named, claimed, links_out, unfinished_files, walk
from faultrun.checkpoints.names import forget_names
from faultrun.checkpoints.reading import each_of, sampled_digest
from faultrun.checkpoints.registry import Registry, load_registry
from faultrun.checkpoints.saves.growing_save import AT_ONCE
from faultrun.checkpoints.saves.save_groups import SavesOfRun, grouped
from faultrun.checkpoints.saves.stages import with_stages
from faultrun.checkpoints.scan_result import Pile, Scan
from faultrun.checkpoints.verdict_cache import LEFT_ALONE, LeftAlone, Memory, stamp_in
from faultrun.checkpoints.verifier import ScannedPath, Verifier, as_entry, failed, series_of
from faultrun.model.checkpoint import Depth, Entry, Refusal, Verdict
from faultrun.model.observed.saves import NOTHING_SEEN

_NUMBER = re.compile(r"\d+")
_USUAL, _MANY_OBJECTS = gc.get_threshold(), 100_000
_AHEAD_FILES, _AHEAD_BYTES = 16, 16 << 20
"""To read these is cheaper than to have all ranks wait for it; more belongs to those who train."""


class Catalog:
    """The checkpoints under ``roots``.

    ``memory_path`` is a file in the log_dir that remembers headers and verdicts, and beside it lies the list
    of what is left alone; None remembers only in this process. ``settle_s``: a file written to in the last
    seconds and not proved by a checksum must stay unchanged for so long; 0 when every writer is known to be
    dead. ``seen`` is what the run's saves were seen to be made of, ``world_size`` how many workers it had at
    most, 0 if unknown; ``order`` is that of the writing, None if unknown; ``foreign`` are folders of other
    runs: they are not looked through.
    """

    def __init__(
        self,
        roots: Sequence[str],
        *,
        memory_path: str | None = None,
        settle_s: float = 0.25,
        registry: Registry | None = None,
    ) -> None:
        self.roots = tuple(dict.fromkeys(roots))
        self.registry = load_registry() if registry is None else registry
        self._memory = Memory(memory_path)
        beside = memory_path and str(Path(memory_path).with_name(LEFT_ALONE))
        self._left_alone = LeftAlone(beside, self._contents)
        self._formats = {one.name: one for one in self.registry.formats}
        self._verifier = Verifier(self._memory, self._formats, settle_s)
        self._absolute_roots = tuple(str(Path(root).absolute()) for root in self.roots)
        self._adopted: tuple[str, ...] = ()
        self.seen, self.world_size = NOTHING_SEEN, 0
        self.order: Mapping[str, int] | None = None
        self.foreign: tuple[str, ...] = ()
        self._unproved: set[Stamp] = set()
        self._others = frozenset[str]()

    @property
    def places(self) -> tuple[str, ...]:
        """Every folder that is looked through."""
        return (*self.roots, *self._adopted)

    def adopt(self, folder: str) -> None:
        """Look for faultrun's own saves in ``folder`` too, and for nothing else: it may hold anything.

        No folder below it is entered. One that lies under a root is looked through anyway.
        """
        inside = os.path.realpath(folder)
        for place in self.places:
            root = os.path.realpath(place)
            if inside == root or (place in self.roots and inside.startswith(root.rstrip("/") + "/")):
                return
        self._adopted = (*self._adopted, folder)

    def scan(self) -> Scan:
        """List, claim by name, read headers (once each), and give sessions a common count of steps."""
        gc.set_threshold(_MANY_OBJECTS, *_USUAL[1:])  # a thousand files are no garbage
        pile = Pile()
        for root in self.roots:
            self._look(root, walk(root), self.registry.formats, pile)
        for folder in self._adopted:
            self._look(folder, islice(walk(folder), 1), (faultrun_manifest.GASP_MANIFEST,), pile)
        pile.keep_one_name_each()
        self._verifier.known = {path: self._known_as(one) for path, one in pile.named.items()}
        described = pile.without_part_steps(each_of(tuple(pile.named.values()), self._header))
        marks = frozenset[str]().union(*map(faultrun_manifest.marks_of, self.places))
        entries = [self._as_of_now(one, marks) for one in self._reconciled(described)]
        self._memory.save()
        came = (self._left_alone.reached or 0) - AT_ONCE
        past = {path for one in self.seen.saves for path in one.paths if (one.step or came) < came}
        self._verifier.seen = {path: path in past for one in self.seen.saves for path in one.paths}
        written = self._written(entries)
        aside = [one for one in entries if self._left_alone.holds(one, written=one.path in written)]
        left = {one.path for one in aside}
        ours = [one for one in entries if one.path not in left]
        members = {path: one.members for path, one in self._verifier.known.items()}
        run = SavesOfRun(
            seen=self.seen,
            reached=self._left_alone.reached,
            world_size=self.world_size,
            order=self.order,
            strangers=[*chain.from_iterable(members[one.path] for one in aside)],
            first_seen=self._memory.first_seen,
        )
        saves = grouped(ours, members, pile.listings, self._absolute_roots, run)
        self._others = saves.others
        self._verifier.beside = {
            path: [*map(as_entry(ours), others)] for path, others in saves.beside.items()
        }
        gc.set_threshold(*_USUAL)
        forget_names()
        entries = _as_seen(saves.entries, {one.global_step for one in ours} | {None})
        return Scan(
            entries=tuple(with_stages(entries) if self.order is None else entries),
            refused=(*pile.refused, *pile.linked.values()),
            unfinished=tuple(pile.unfinished),
            left_alone=tuple(aside),
        )

    def beside(self, path: str) -> tuple[str, ...]:
        """What is saved with the file ``path``, by the last scan; the members of a folder."""
        known = self._verifier.known.get(path)
        inside = () if known is None or known.members == (path,) else known.members
        return tuple(one.path for one in self._verifier.beside.get(path, ())) or inside

    def files_of(self, entry: Entry) -> Sequence[str]:
        """The files of which ``entry``, of the last scan, is made."""
        return self._verifier.known[entry.path].members

    def look_ahead(self) -> int:
        """Have headers remembered, and which small new saves are proved whole; how many files there are."""
        scan = self.scan()
        there = (*scan.entries, *scan.left_alone)
        room_bytes = _AHEAD_BYTES
        for entry in nlargest(_AHEAD_FILES, scan.entries, key=lambda one: one.mtime_ns):
            room_bytes -= entry.size_bytes
            if room_bytes < 0:
                break
            stamp = stamp_in(entry)
            if stamp not in self._unproved and not self._verifier.proved_ahead(entry):
                self._unproved.add(stamp)
        self._unproved &= set(map(stamp_in, there))
        self._memory.forget_contents_but(there)
        self._verifier.known.clear()
        self._verifier.beside.clear()
        self._verifier.series.clear()
        return len(there)

    def listed(self) -> dict[str, Stamp]:
        """What lies under the roots by its names alone, with its stamps; opens and remembers nothing."""
        named = (
            one
            for root in self.roots
            for found in walk(root)
            if not (isinstance(found, Refusal) or self._is_foreign(found.path))
            for one in claimed(found, root, self.registry.formats)
        )
        there = (one for one in named if isinstance(one, Named) and not one.unfinished)
        return {one.first.path: stamp_in(one.first) for one in there}

    def is_left_alone(self, path: str) -> bool:
        """Whether ``path`` was there before this run, by what is in it; its header is read."""
        return any(one.path == path for one in self.scan().left_alone)

    def holding(self, files: Iterable[str]) -> str:
        """The first checkpoint, by its name, of which one of ``files`` is a part, outside all ``places``."""
        there = [one for one in files if not any(one.startswith(f"{place}/") for place in self.places)]
        for folder in dict.fromkeys(one.rpartition("/")[0] for one in there):
            for found in islice(walk(folder), 1):
                named = () if isinstance(found, Refusal) else claimed(found, folder, self.registry.formats)
                for one in named:
                    if isinstance(one, Named) and not set(there).isdisjoint((one.first.path, *one.members)):
                        return one.first.path
        return ""

    def leave_alone(self, entries: Iterable[Entry]) -> None:
        """Never offer these files again, in this run, unless it writes them anew.

        OSError when that cannot be kept on the disk; this process knows it even so.
        """
        strangers = tuple(entries)
        self._left_alone.add(zip(strangers, each_of(strangers, self._contents), strict=True))
        self._left_alone.keep()

    def pass_over(self, entries: Iterable[Entry]) -> None:
        """Do not offer these files until this is called again; nothing is kept on the disk."""
        self._left_alone.pass_over(entries)

    def take_back(self, path: str) -> None:
        """What lies at ``path`` is this run's, and so are files of its kind for the same training point."""
        aside = self.scan().left_alone if path and self._left_alone else ()
        told = {(one.kind, one.identity.told) for one in aside if one.path == path and one.identity.tells}
        self._left_alone.take_back(
            one for one in aside if one.path == path or (one.kind, one.identity.told) in told
        )
        with suppress(OSError):
            self._left_alone.keep()

    def reached(self, step: int | None) -> None:
        """How far the run has come: what tells of a later point was written by another run."""
        self._left_alone.reached = step

    def know(self, entries: Iterable[Entry], life: int) -> None:
        """Remember that these files were there when ``life`` was over, until they are written anew."""
        there = self._with_members([one for one in entries if one.incarnation is None])
        self._memory.know((one for one in there if self._memory.first_seen(stamp_in(one)) is None), life)
        self._memory.save()

    def tidy(self, scan: Scan) -> None:
        """Forget what was learned of files that ``scan`` did not find; for the memory's owner only."""
        self._left_alone.meet_again(scan.left_alone)
        with suppress(OSError):
            self._left_alone.keep()
        self._memory.forget_all_but((*self._with_members(scan.entries), *scan.left_alone))

    def _written(self, entries: Sequence[Entry]) -> set[str]:
        """Which of ``entries`` the run was seen to write; the kernel does not say who wrote.

        Who copies an old one here is no part of the run. That tells of a point which the run has not reached;
        only where two saves do, at two times, does the run count otherwise than its files.
        """
        early, reached = self.seen.prepared, self._left_alone.reached
        at = {path: one.step for one in self.seen.saves for path in one.files + one.lie if path not in early}
        seen = {one.path: at[path] for one in entries for path in self.files_of(one) if path in at}
        told = {one.path: one.global_step or 0 for one in entries if one.path in seen}
        ahead = {path for path, step in told.items() if reached is not None and step > reached}
        counts_alike = len({seen[path] for path in ahead}) < 2 or len({told[path] for path in ahead}) < 2
        return seen.keys() - ahead if counts_alike else {*seen}

    def _with_members(self, entries: Sequence[Entry]) -> list[Entry]:
        """``entries``, the files in their folders, and those of saves that are no entries."""
        inside = [self._verifier.known[one.path].members for one in entries if one.format == "folder"]
        return [*entries, *map(as_entry(()), {*chain.from_iterable(inside), *self._others})]

    def verify(self, entry: Entry, *, depth: Depth = Depth.CHECKSUM, meter: Meter = no_meter) -> Verdict:
        """Whether ``entry`` (of the last scan) is whole, to ``depth``; see ``Verifier.verify``."""
        return self._verifier.verify(entry, Look(depth=depth, meter=meter))

    def _as_of_now(self, entry: Entry, marks: frozenset[str]) -> Entry:
        """With what is no part of the file, and so of no header."""
        life = self._memory.first_seen(stamp_in(entry))
        if life != entry.first_seen:
            entry = replace(entry, first_seen=life)
        if marks and entry.format == faultrun_manifest.GASP_MANIFEST.name:
            with suppress(OSError, Unreadable):
                return replace(entry, finished=faultrun_manifest.mark_of(entry.path) in marks)
        return entry

    def _look(
        self, root: str, listings: Iterable[Listing | Refusal], formats: Sequence[Format], pile: Pile
    ) -> None:
        for found in listings:
            if isinstance(found, Refusal):
                pile.refused.append(found)
                continue
            if self._is_foreign(found.path):
                continue
            if found.path in pile.parts:
                pile.parts.update(map(found.join, found.directories))
                continue
            if formats is self.registry.formats:
                pile.listings.append(found)
                pile.unfinished += unfinished_files(found)
                pile.linked.update({one.path: one for one in links_out(found, formats)})
            for one in claimed(found, root, formats):
                pile.add(one)

    def _is_foreign(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{folder}/") for folder in self.foreign)

    def _known_as(self, named: Named) -> ScannedPath:
        """What is known of a path, as long as its stamp is the same."""
        known = self._verifier.known.get(named.first.path)
        stamp = stamp_in(named.first)
        return (
            known if known and known.stamp == stamp else ScannedPath(stamp, named.members, time.monotonic())
        )

    def _contents(self, entry: Entry) -> str:
        """A digest of a few places of what lies there, read once for each time that it was written."""
        listed = self._verifier.known.get(entry.path)
        if listed is None:
            return sampled_digest((entry.path,))
        listed.contents = listed.contents or sampled_digest(sorted(listed.members))
        return listed.contents

    def _header(self, named: Named) -> Entry:
        """The first claimant's entry that its bytes confirm; as named, and unreadable, if there is none."""
        listed, whys = self._verifier.known[named.first.path], list[str]()
        listed.unreadable = ""
        for entry in named.entries:
            known = self._memory.header(entry)
            if known is not None:
                return known
            try:
                found = self._read(entry)
            except Foreign as err:
                whys.append(err.why)
                continue
            except Unreadable as err:
                whys.insert(0, err.why)
                break
            self._memory.remember_header(found)
            return found
        listed.unreadable = whys[0]
        return named.first

    def _read(self, entry: Entry) -> Entry:
        if entry.size_bytes == 0:
            raise Unreadable("is empty")
        try:
            return self._formats[entry.format].read(entry)
        except Unreadable:
            raise
        except Exception as err:  # formats may be plug-ins; one bad file must not hide the rest
            raise Unreadable(failed(entry, err)) from err

    def _reconciled(self, entries: Sequence[Entry]) -> list[Entry]:
        series: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
        for entry in entries:
            series[series_of(entry)].append(entry)
        self._verifier.series.clear()
        for key, found in series.items():
            self._verifier.series[key] = self._with_common_steps(key[0], found)
        return list(chain.from_iterable(self._verifier.series.values()))

    def _with_common_steps(self, form: str, series: list[Entry]) -> list[Entry]:
        """Have the format correct ``series`` (``reconcile``); where it fails, all of it is unreadable."""
        reconcile = getattr(self._formats[form], "reconcile", None)
        try:
            return series if reconcile is None else list(reconcile(series))
        except Exception as err:  # noqa: BLE001 - formats may be plug-ins; one must not end a run that trains
            for entry in series:
                self._verifier.known[entry.path].unreadable = failed(entry, err)
            return series


def _as_seen(entries: Sequence[Entry], told: Collection[int | None]) -> list[Entry]:
    """``entries``, marked where the step is only that of the furthest rank as they were seen written."""
    seen = (one for one in entries if one.global_step not in told)
    found = {one.path for one in seen if one.global_step not in {*map(int, _NUMBER.findall(one.path))}}
    return [replace(one, seen_step=one.global_step) if one.path in found else one for one in entries]
