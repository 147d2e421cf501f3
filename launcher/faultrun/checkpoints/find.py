"""Scan, choose, verify what the choice depends on, choose again: one question, one answer.

May take as long as the files are large; the supervisor calls it from a
helper thread, the command line with a progress bar.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.in_parallel import in_parallel
from faultrun.checkpoints.scan_result import Scan
from faultrun.core.recovery.choose import (
    Choice,
    Chosen,
    NeedVerdicts,
    NoneUsable,
    NothingFound,
    choose,
    choose_first,
)
from faultrun.core.recovery.need import Need
from faultrun.model.checkpoint import Depth, Entry, RecoveryPoint, Refusal, Verdict

_VERIFIERS = 4


class VerifyProgress:
    """Who is told how verification goes on, from several threads; this one ignores it."""

    def begins(self, entries: Sequence[Entry]) -> None:
        """Hear that these files are about to be verified."""

    def reads(self, size_bytes: int) -> None:
        """Hear that so many bytes of them were just read."""

    def done(self, entry: Entry) -> None:
        """Hear that the verdict on ``entry`` is there, however much of it had to be read."""

    def over(self) -> None:
        """Hear that the search has ended: the next one counts anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The answer, what it was chosen from, and what was verified on the way (by path)."""

    choice: Chosen | NoneUsable | NothingFound
    scan: Scan
    verdicts: dict[str, Verdict]

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """Every refusal with its reason: the choice's and those that never were candidates."""
        return (*self.choice.refused, *self.scan.unfinished)


def scan_and_choose(
    catalog: Catalog, *needs: Need, depth: Depth = Depth.CHECKSUM, progress: VerifyProgress | None = None
) -> Findings:
    """Return where to resume under ``catalog``'s roots, verifying newest first and no more than needed.

    Of several ``needs`` a later one counts where nothing whole serves those before.
    """
    scan = catalog.scan()
    entries = {entry.path: entry for entry in scan.entries}
    verdicts: dict[str, Verdict] = {}
    while True:
        choice = choose_first(scan.entries, verdicts, needs, broken=scan.refused)
        if not isinstance(choice, NeedVerdicts):
            return Findings(choice=choice, scan=scan, verdicts=verdicts)
        wanted = [entries[path] for path in choice.paths]
        verdicts |= verify_all(catalog, wanted, depth=depth, progress=progress)


def further(catalog: Catalog, found: Findings, need: Need, *, most: int) -> tuple[RecoveryPoint, ...]:
    """Up to ``most`` older recovery points than the chosen one, each verified; best first.

    One that names a single file for all ranks lists no files.
    """
    points: list[RecoveryPoint] = []
    entries, verdicts = list(found.scan.entries), dict(found.verdicts)
    choice: Choice = found.choice
    while isinstance(choice, Chosen) and len(points) <= most:
        points.append(choice.point)
        told = (choice.point.global_step, choice.point.epoch, choice.point.step_in_epoch)
        entries = [
            one
            for one in entries
            if (one.reached, one.epoch, one.step_in_epoch) != told and one.path != choice.point.path
        ]
        by_path = {entry.path: entry for entry in entries}
        choice = choose(entries, verdicts, need)
        while isinstance(choice, NeedVerdicts):
            verdicts |= verify_all(catalog, [by_path[path] for path in choice.paths])
            choice = choose(entries, verdicts, need)
    alone = [all(file.path == point.path for file in point.files) for point in points]
    return tuple(replace(one, files=()) if alone[at] else one for at, one in enumerate(points) if at)


def verify_all(
    catalog: Catalog,
    entries: Sequence[Entry],
    *,
    depth: Depth = Depth.CHECKSUM,
    progress: VerifyProgress | None = None,
) -> dict[str, Verdict]:
    """Verify ``entries`` (of the catalog's last scan), several at a time; verdicts by path."""
    if not entries:
        return {}
    told = VerifyProgress() if progress is None else progress
    told.begins(entries)

    def verify(entry: Entry) -> Verdict:
        verdict = catalog.verify(entry, depth=depth, meter=told.reads)
        told.done(entry)
        return verdict

    verdicts = in_parallel(verify, entries, most=_VERIFIERS, name="verify")
    return {entry.path: verdict for entry, verdict in zip(entries, verdicts, strict=True)}
