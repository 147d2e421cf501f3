"""Whether the bytes of checkpoints are all there: of each file, and of all that was saved with it.

Verdicts are remembered until a file changes. Never raises for what a file contains.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import islice

from faultrun.checkpoints.format import Foreign, Format, Look, Stamp, Unreadable
from faultrun.checkpoints.formats.by_contents import verify_contents
from faultrun.checkpoints.listing import combined, stamp_of
from faultrun.checkpoints.names import base_name, place_of
from faultrun.checkpoints.reading import compare_digest, stored_digest
from faultrun.checkpoints.saves.save_names import masked
from faultrun.checkpoints.verdict_cache import Memory, stamp_in
from faultrun.files import is_open_for_writing
from faultrun.model.checkpoint import Depth, Entry, Kind, Verdict

_SIBLINGS = 4
_RECENT_NS, _LONG_AGO_NS = 2_000_000_000, 600_000_000_000
_MOST_ASKED = 1000


@dataclass(slots=True)
class ScannedPath:
    """A path of the last scan: since when its stamp is this one (monotonic), and why it is no checkpoint.

    ``contents`` is the digest of samples, once it was asked for.
    """

    stamp: Stamp
    members: tuple[str, ...]
    at_s: float
    unreadable: str = ""
    contents: str = ""


@dataclass(slots=True)
class Verifier:
    """Verifies entries of the last scan, which fills ``known``, ``series`` and what is ``beside`` a path."""

    memory: Memory
    formats: Mapping[str, Format]
    settle_s: float
    known: dict[str, ScannedPath] = field(default_factory=dict)
    series: dict[tuple[str, str, str], list[Entry]] = field(default_factory=dict)
    beside: dict[str, list[Entry]] = field(default_factory=dict)
    seen: dict[str, bool] = field(default_factory=dict)
    """Files that the run was seen to save, and whether training went on after one of these saves."""

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Whether ``entry`` is whole, to the depth of ``look``, and so is all that was saved with it.

        It is remembered of each file until that changes.
        """
        verdict = self._verified(entry, look)
        for other in self.beside.get(entry.path, ()) if verdict.whole else ():
            beside = self._verified(other, look)
            if not (beside.whole or beside.unverifiable):
                return replace(beside, why=f"{base_name(other.path)}, which is saved with it: {beside.why}")
        return verdict

    def proved_ahead(self, entry: Entry) -> bool:
        """Whether its checksums prove it, while others write: nothing less is worth remembering then."""
        return self._verified(entry, Look(), ahead=True).proved

    def _siblings(self, entry: Entry) -> list[Entry]:
        """The nearest other saves of the same rank, and other ranks' files of the same save."""
        series = self.series.get(series_of(entry), ())
        told = entry.identity.told
        own = (one for one in series if one.rank == entry.rank and one.path != entry.path)
        others = (one for one in series if one.rank != entry.rank and one.identity.told == told)
        near = nsmallest(_SIBLINGS, own, key=lambda one: abs(one.mtime_ns - entry.mtime_ns))
        return [*near, *nsmallest(_SIBLINGS, others, key=lambda one: one.rank or 0)]

    def _gone(self, entry: Entry) -> dict[str, list[str]]:
        """The files of folders named like that of ``entry``, which are not there any more."""
        found: dict[str, list[str]] = {}
        for folder, _, name in (path.rpartition("/") for path in self.seen):
            if masked(folder) == masked(entry.path) and stamp_of(folder) is None:
                found.setdefault(folder, []).append(name)
        return found

    def _verified(self, entry: Entry, look: Look, *, ahead: bool = False) -> Verdict:
        """``ahead``: others write, so only what its own checksums prove is worth remembering."""
        if self._stamp(entry) != stamp_in(entry):
            return _changed("changed since it was listed: still being written")
        known = self.memory.verdict(entry, look.depth)
        if known is not None:
            return known
        listed = self.known.get(entry.path)
        if listed is not None and listed.unreadable:
            return Verdict(whole=False, why=listed.unreadable, depth=Depth.STRUCTURE)
        passed = listed is not None and any(map(self.seen.get, listed.members))
        look = replace(look, siblings=self._siblings(entry), gone=self._gone(entry), trained_past=passed)
        verdict = self._judge(entry, look)
        if ahead and not verdict.proved:
            return verdict
        if verdict.whole and not verdict.proved:
            self._settle(entry)
            if self._is_being_written(entry):
                return _changed("a process still has it open for writing")
        if self._stamp(entry) != stamp_in(entry):
            return _changed("still growing: it changed while it was read")
        if not verdict.provisional:
            self.memory.remember_verdict(entry, verdict, look.depth)
            self.memory.save()
        return verdict

    def _judge(self, entry: Entry, look: Look) -> Verdict:
        try:
            verdict = self.formats[entry.format].verify(entry, look)
            provable = verdict.unverifiable or (verdict.whole and verdict.depth is not Depth.CHECKSUM)
            if not provable or look.depth is not Depth.CHECKSUM:
                return verdict
            digest = stored_digest(entry.path)
            return verdict if digest is None else compare_digest(entry.path, digest, look.meter)
        except Unreadable as err:
            if isinstance(err, Foreign) and entry.path not in self.known:  # claimed by no format
                return self._by_contents(entry, look)
            return Verdict(whole=False, why=err.why, depth=Depth.STRUCTURE)
        except Exception as err:  # noqa: BLE001 - formats may be plug-ins; a failed proof is no proof
            return Verdict(whole=False, why=failed(entry, err), depth=Depth.NAME, provisional=True)

    def _by_contents(self, entry: Entry, look: Look) -> Verdict:
        """A file that is saved with others and is of no format: whole unless its layout shows a cut."""
        try:
            known = verify_contents(entry.path, look.depth)
        except Unreadable as err:
            return Verdict(whole=False, why=err.why, depth=Depth.STRUCTURE)
        return known or Verdict(whole=True, why="of no known format", depth=Depth.NAME, provisional=True)

    def _settle(self, entry: Entry) -> None:
        """Wait until a file written to a moment ago had time to show that it goes on changing."""
        if time.time_ns() - entry.mtime_ns > _RECENT_NS:
            return
        now_s = time.monotonic()
        listed = self.known.get(entry.path)
        time.sleep(max(0.0, (listed.at_s if listed else now_s) + self.settle_s - now_s))

    def _is_being_written(self, entry: Entry) -> bool:
        """Whether a process has a member open for writing; what was not written to for long is not."""
        if time.time_ns() - entry.mtime_ns > _LONG_AGO_NS:
            return False
        listed = self.known.get(entry.path)
        return any(map(is_open_for_writing, islice(listed.members if listed else (entry.path,), _MOST_ASKED)))

    def _stamp(self, entry: Entry) -> Stamp | None:
        listed = self.known.get(entry.path)
        return combined(map(stamp_of, listed.members if listed else (entry.path,)))


def as_entry(known: Sequence[Entry]) -> Callable[[str], Entry]:
    """How to look at a file that is saved with others: as its entry, or as a format that shows a cut."""
    by_path = {one.path: one for one in known}

    def entry_of(path: str) -> Entry:
        stamp = stamp_of(path) or Stamp(0, 0, 0)
        form = "safetensors" if path.endswith(".safetensors") else "torch"
        return by_path.get(path) or Entry(path=path, format=form, kind=Kind.PERIODIC, **stamp._asdict())

    return entry_of


def failed(entry: Entry, err: Exception) -> str:
    """What to say of a format that raised where it must not."""
    return f"the format {entry.format} failed on it: {type(err).__name__}: {err}"


def series_of(entry: Entry) -> tuple[str, str, str]:
    """Which series an entry is of: the files that one writer gives one kind of names to."""
    return (entry.format, place_of(entry.path.rpartition("/")[0]), entry.series)


def _changed(why: str) -> Verdict:
    return Verdict(whole=False, why=why, depth=Depth.NAME, provisional=True)
