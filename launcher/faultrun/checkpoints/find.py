"""Scan, choose, verify what the choice depends on, choose again: one question, one answer.

May take as long as the files are large; the supervisor calls it from a
helper thread, the command line with a progress bar.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from faultrun.checkpoints.catalog import Catalog, Scan
from faultrun.core.recover import Chosen, Need, NeedVerdicts, NoneUsable, NothingFound, choose_first
from faultrun.model.checkpoint import Depth, Entry, Refusal, Verdict

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

    if len(entries) == 1:
        return {entries[0].path: verify(entries[0])}
    with ThreadPoolExecutor(min(_VERIFIERS, len(entries)), thread_name_prefix="checkpoint-verify") as pool:
        paths = [entry.path for entry in entries]
        return dict(zip(paths, pool.map(verify, entries), strict=True))
