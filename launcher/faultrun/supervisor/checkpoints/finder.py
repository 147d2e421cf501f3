"""Which checkpoint to resume from: the catalog's findings under the run's rules."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.find import Findings, VerifyProgress, further, scan_and_choose
from faultrun.checkpoints.format import Stamp
from faultrun.checkpoints.formats.unrecognised import unknown_files
from faultrun.core.recovery import choose
from faultrun.core.recovery.candidate_order import own_saves
from faultrun.core.recovery.need import Whose, last_resorts, need_of, world_size
from faultrun.core.recovery.reshardable import written_by
from faultrun.errors import LogDirError
from faultrun.files import DISK_FULL
from faultrun.model.actions import FindRecoveryPoint
from faultrun.model.checkpoint import Depth, Entry, RecoveryPoint, Refusal, Verdict
from faultrun.model.events import NothingWhole, PrepareFailed, RecoveryPointChosen
from faultrun.model.observed.saves import FirstSaveTold, SavesSeen
from faultrun.model.spec.run_spec import Resume, RunSpec
from faultrun.supervisor.checkpoints.checkpoint_words import as_opened, gone, none_usable, tell_first_save
from faultrun.supervisor.checkpoints.mounts import Mounts, unreadable
from faultrun.supervisor.checkpoints.other_runs import OtherRuns
from faultrun.supervisor.checkpoints.replicas import KnownReplicas, known_replicas
from faultrun.supervisor.checkpoints.saves_of_runs import SavesKnown, SavesOfRuns
from faultrun.supervisor.reactor import RunClock

_SHOWN = 50
_RAN_OUT = 71
_OLDER = 3
"""Nodes that save on their own disks differ by a save or two, and by a gasp."""
_FILES = 1024
"""A statement of a node stays far below what etcd takes in one value."""

FindAnswer = RecoveryPointChosen | NothingWhole | PrepareFailed


class CheckpointFinder:
    """Looks through the checkpoints, in a helper thread; ``beside`` are other runs there at the last look.

    ``meter`` is told how far a verification is. Files that do not say whose they are
    may be the ``neighbours``'.
    """

    def __init__(
        self,
        spec: RunSpec,
        catalog: Catalog,
        clock: RunClock,
        meter: VerifyProgress | None = None,
        neighbours: OtherRuns | None = None,
        saves: SavesKnown | None = None,
    ) -> None:
        self._meter, self._spec, self._catalog = meter, spec, catalog
        catalog.world_size = max(spec.topology.world_size, catalog.world_size)
        self._clock = clock
        self._saves = SavesKnown() if saves is None else saves
        self._neighbours = neighbours
        script = spec.command.script
        self._lists = None if neighbours is None else SavesOfRuns(catalog.roots, neighbours, script)
        self._others: tuple[str, ...] = ()
        self.beside: tuple[str, ...] = ()
        self._mounts: Mounts | None = None
        self._gone_since_s: float | None = None
        self._knows_strangers, self._left_alone = False, 0

    def find(self, request: FindRecoveryPoint, at_s: float) -> FindAnswer:
        """The recovery point, why there is none, or why the run cannot go on."""
        try:
            found = self._find(request, at_s)
            if request.opened and not self.beside and isinstance(found, RecoveryPointChosen | NothingWhole):
                found = replace(found, refused=tuple(as_opened(one, request.opened) for one in found.refused))
            return found
        finally:
            if self._meter is not None:
                self._meter.over()

    def _find(self, request: FindRecoveryPoint, at_s: float) -> FindAnswer:
        for folder in request.folders:
            self._catalog.adopt(str(Path(folder).absolute()))
        if not self._catalog.places:
            return self._chosen(request, at_s)
        seen = self._look_around()
        mounts = self._mounts = self._mounts or Mounts(
            self._catalog.places, Path(self._spec.logs.log_dir), anew=not request.continuing
        )
        answer = self._new_run(request, at_s)
        if answer is not None:
            return answer
        self._catalog.reached(request.reached)
        self._catalog.take_back(request.resumed)
        lists = None if self._spec.recovery.resume is Resume.ALWAYS else self._lists
        theirs = {} if lists is None else lists.of_others(self._catalog, request.resumed)
        early = self._written_early(request, seen)
        self._catalog.pass_over((*early, *theirs))
        self._others = tuple(sorted({*theirs.values()}))
        replicas = known_replicas(self._spec, world_size(self._spec, request))
        ours, namesake = self._certain(), self._has_namesake
        need = need_of(self._spec, request, replicas.groups, self.beside, ours, namesake=namesake)
        found = scan_and_choose(self._catalog, *last_resorts(need), progress=self._meter)
        if need.doubt.after_fault:  # what is doubtful now is so for ever, also after a stop
            with suppress(OSError):  # it is known as long as we live, and kept with the next one
                self._catalog.leave_alone(one for one in found.scan.entries if one.doubtful and not one.known)
        trusted = (one for one in found.scan.entries if not (need.doubt.after_fault and one.doubtful))
        self._catalog.know(trusted, request.incarnation)
        self._catalog.tidy(found.scan)
        own = [one for one in found.scan.entries if one.run_id == self._spec.run_id]
        match found.choice:
            case choose.Chosen(point=point):
                mounts.see(self._catalog.places)
                self._gone_since_s = None
                chosen = self._chosen(request, at_s, point=point, refused=(*found.refused, *replicas.refused))
                older = replace(need, disks=replace(need.disks, partly=bool(point.part_of)))
                most = _OLDER if need.world.groups is None else min(_OLDER, _FILES // need.world.size)
                more = further(self._catalog, found, older, most=most * need.disks.several)
                if point.fixed_by:  # nor does the run shrink from it; what is older may serve fewer
                    fewer = replace(need, world=replace(need.world, size=need.world.size - 1, groups=None))
                    more = (*more, *further(self._catalog, found, fewer, most=1))
                return replace(chosen, periodic_step=self._periodic_step(found), more_points=more)
            case choose.NothingFound() if need.disks.several and own and all(one.finished for one in own):
                return self._chosen(
                    request, at_s, refused=found.refused
                )  # as other nodes noted: it ended well
            case choose.NothingFound() if request.expects or mounts.changed():
                return self._gone(request, found.refused, found.scan.unfinished)
            case choose.NothingFound():
                why = "written before the first step of training: no save of this run"
                none = (Refusal(path=one.path, global_step=one.global_step, why=why) for one in early)
                return self._chosen(request, at_s, refused=(*none, *found.refused))
            case choose.NoneUsable() if not found.scan.entries and any(map(unreadable, self._catalog.places)):
                return self._gone(request, found.refused, found.scan.unfinished)
            case choose.NoneUsable(unverifiable=unverifiable):
                return self._none_whole(request, found, replicas, unverifiable)

    def _written_early(self, request: FindRecoveryPoint, seen: SavesSeen) -> list[Entry]:
        """What the script wrote before it began to train: fetched weights, a cache.

        What tells a step is a save even so, if the run had come to it by the first step that was told then,
        or if none was: a script may print no steps.
        """
        asked = self._spec.recovery.resume is Resume.ALWAYS or self._spec.recovery.formats
        if asked or len(self._spec.topology.nodes) > 1:
            return []
        first = self._saves.early if self._saves.whole else {}
        prepared, found = {*seen.prepared} - {request.expects}, list[Entry]()
        for one in self._catalog.scan().entries:
            early = [
                path for path in self._catalog.files_of(one) if path in first and path != request.expects
            ]
            no_save = self._saves.whole and (one.path in prepared or not prepared.isdisjoint(early))
            if one.identity.tells and early:
                no_save = first[early[0]] != (None, None) and not one.identity.told_by(*first[early[0]])
            elif one.identity.tells:  # an earlier supervisor saw it
                beyond = request.reached is not None and not one.identity.told_by(request.reached, None)
                no_save = one.path in prepared and beyond and not seen.saves
            found += [one] if no_save and one.run_id is None else []
        return found

    def note(self, seen: SavesSeen) -> None:
        """Have other runs, and later lives of this one, know that these are our saves, in this order."""
        if self._lists is not None and self._saves.began:
            self._lists.note(seen, whole=self._saves.whole)

    def last_seen(self, known: SavesSeen) -> SavesSeen:
        """``known``, with what an earlier supervisor of this run saw of its newest saves, on one node."""
        several = len(self._spec.topology.nodes) > 1
        return known if self._lists is None or several else self._lists.last_seen(known)

    def _new_run(self, request: FindRecoveryPoint, at_s: float) -> FindAnswer | None:
        """The answer for a new run that finds none of its own; None if it does, or the run continues.

        What is older than this run is marked, so that no restart takes it. What is new when a spare looks
        again is most likely the run's, and the others know more of it: it is passed over as long as that.
        """
        self._left_alone = 0
        self._catalog.pass_over(())
        if request.continuing or self._spec.recovery.resume is Resume.ALWAYS:
            return None
        scan = self._catalog.scan()
        knows_its_own = self._spec.recovery.resume is Resume.AUTO and not self._has_namesake
        own = self._own(scan.entries) if knows_its_own else ()
        others = [one for one in scan.entries if one not in own]
        first = not self._knows_strangers
        self._catalog.pass_over(others)
        try:
            self._catalog.leave_alone(others if first else ())
        except OSError as error:
            return self._cannot_note(request, error)
        if not scan.entries and any(map(unreadable, self._catalog.places)):
            # Strangers' checkpoints that are seen only later would be taken for ours.
            return self._gone(request, scan.refused, scan.unfinished)
        self._knows_strangers, self._left_alone = True, len(others) if first else 0
        if len(others) < len(scan.entries):
            return None
        self._gone_since_s = None
        return self._chosen(request, at_s)

    def _own(self, entries: Iterable[Entry]) -> set[Entry]:
        """Checkpoints of this run, as they say or, on one node, its lists: of several each has its own."""
        own = {one for one in entries if one.run_id == self._spec.run_id and not one.finished}
        alone = len(self._spec.topology.nodes) == 1
        return own | self._lists.ours(self._catalog) if alone and self._lists is not None else own

    def _certain(self) -> set[str]:
        """Paths of what this run wrote while it was alone, on one node, where another one came and went."""
        lists = self._lists if self.beside and len(self._spec.topology.nodes) == 1 else None
        return set() if lists is None else lists.certain(self._catalog)

    @property
    def _has_namesake(self) -> bool:
        return self._neighbours is not None and bool(self._neighbours.namesakes)

    def listed(self) -> dict[str, Stamp]:
        """What of ours lies there, by its names alone; from now on other runs know that we save there."""
        self._look_around()
        return self._catalog.listed()

    def first_save(self, incarnation: int, elsewhere: Sequence[str] = ()) -> FirstSaveTold | None:
        """What would be handed over if a fault came now; nothing is read but headers.

        ``elsewhere`` are files that were written elsewhere; None where none of them is a checkpoint.
        """
        at_s, seen = self._clock.now(), self._look_around()
        told = FirstSaveTold(at_s=at_s, incarnation=incarnation, path="")
        beside = () if self._spec.recovery.resume is Resume.ALWAYS else self.beside
        doubt, whole = Whose(shared_with=", ".join(beside), ours=self._certain()), self._saves.whole
        return tell_first_save(told, self._spec, self._catalog, elsewhere, doubt, whole=whole, seen=seen)

    def _look_around(self) -> SavesSeen:
        """Who else saves here now, and what was seen of our own saves."""
        if self._neighbours is not None:
            self.beside, self._catalog.foreign = self._neighbours.others(), self._neighbours.folders_below()
        self._catalog.seen = self._saves.seen().outside(self._catalog.foreign)
        self._catalog.order = self._order(self._catalog.seen)
        return self._catalog.seen

    def _order(self, seen: SavesSeen) -> Mapping[str, int] | None:
        """In which order the files were written; None where some may have been missed."""
        if len(self._spec.topology.nodes) > 1:
            return None
        self.note(seen)
        if self._saves.whole:
            return seen.order
        return None if self._lists is None else self._lists.order(self._catalog.listed(), seen)

    def read_back(self, path: str) -> Verdict:
        """Whether a save that was just reported is whole, and a candidate; ``find`` need not read it anew."""
        # Workers run in our own working directory, so a path that they say is relative to it.
        wanted = Path(path).absolute()
        self._catalog.adopt(str(wanted.parent))
        entry = next((one for one in self._catalog.scan().entries if Path(one.path) == wanted), None)
        if entry is None:
            return Verdict(whole=False, why="no checkpoint in a known format", depth=Depth.NAME)
        return self._catalog.verify(entry)

    def _chosen(
        self,
        request: FindRecoveryPoint,
        at_s: float,
        *,
        point: RecoveryPoint | None = None,
        refused: tuple[Refusal, ...] = (),
    ) -> RecoveryPointChosen:
        now_s = self._clock.now()
        unknown = "" if point or self._left_alone else self._unknown_files()
        return RecoveryPointChosen(
            at_s=now_s,
            incarnation=request.incarnation,
            point=point,
            refused=refused[:_SHOWN],
            left_alone=self._left_alone,
            unknown_files=unknown,
            neighbours=self.beside,
            others=self._others,
            took_s=now_s - at_s,
        )

    def _periodic_step(self, found: Findings) -> int | None:
        """Step of the newest save that is no gasp; -1 where there is none, None where that is not known."""
        own = own_saves(found.scan.entries, {one.path for one in found.refused})
        if own:
            return own[0].reached
        known_place = bool(self._catalog.roots) and set(self._catalog.places) == set(self._catalog.roots)
        return -1 if known_place and not self._unknown_files() else None

    def _unknown_files(self) -> str:
        """Not of a folder that a save named: only our own are looked for there."""
        return unknown_files(self._catalog.roots, self._catalog.registry.formats)

    def _gone(
        self, request: FindRecoveryPoint, refused: tuple[Refusal, ...], unfinished: Sequence[Refusal]
    ) -> NothingWhole:
        """None is to be seen where there was one, or where it cannot be looked: that is no beginning."""
        now_s = self._clock.now()
        if self._gone_since_s is None:
            self._gone_since_s = now_s
        there = ((place, unreadable(place)) for place in self._catalog.places)
        missing = ((one, why) for one, why in there if why or not Path(one).exists())
        because = "; ".join(f"{place} {why or 'does not exist'}" for place, why in missing)
        if not because and self._mounts is not None and self._mounts.changed():
            because = "another file system lies there than before"
        because = because or "nothing there is a checkpoint of this run"
        because += "".join(f"; {one.path}: {one.why}" for one in unfinished[-1:])
        return NothingWhole(
            at_s=now_s,
            incarnation=request.incarnation,
            refused=refused[:_SHOWN],
            why=gone(request.expects, self._catalog.places, because),
            gone_s=now_s - self._gone_since_s,
        )

    def _cannot_note(self, request: FindRecoveryPoint, error: OSError) -> PrepareFailed:
        """Why the run cannot go on: a later life would take for ours what is left alone and not noted."""
        return PrepareFailed(
            at_s=self._clock.now(),
            incarnation=request.incarnation,
            exit_code=_RAN_OUT if error.errno in DISK_FULL else LogDirError.exit_code,
            why="cannot note which older checkpoints this run leaves alone\n"
            f"  because: {self._spec.logs.log_dir}: {error.strerror}\n"
            "  try:     --log_dir=DIR on a disk with room; or an empty --checkpoint_dir",
            unfit=error.errno in DISK_FULL,
            surveying=True,
        )

    def _none_whole(
        self, request: FindRecoveryPoint, found: Findings, replicas: KnownReplicas, unverifiable: int
    ) -> NothingWhole:
        refused, roots = (*found.refused, *replicas.refused), " ".join(self._catalog.places)
        as_many = written_by(found.scan.entries, world_size(self._spec, request))
        words = none_usable(found, refused, roots, as_many, unverifiable, shared=bool(self.beside))
        return NothingWhole(
            at_s=self._clock.now(), incarnation=request.incarnation, refused=refused[:_SHOWN], why=words
        )
