"""What ``faultrun ckpt`` shows: saves with their verdicts, as a table for people or as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faultrun.checkpoints.names import place_of
from faultrun.checkpoints.scan_result import Scan
from faultrun.core.humanize import rank_runs
from faultrun.core.recovery.candidate_order import moments
from faultrun.core.recovery.choose import Choice, Chosen, NeedVerdicts
from faultrun.model.checkpoint import Depth, Entry, RecoveryPoint, Refusal, Verdict
from faultrun.model.printable import one_line

NOT_VERIFIED = Verdict(whole=False, why="not verified", depth=Depth.NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStep:
    """Files of one series that claim the same step, with a verdict each, in rank order."""

    files: tuple[tuple[Entry, Verdict], ...]

    @property
    def first(self) -> Entry:
        """The file of the lowest rank."""
        return self.files[0][0]

    @property
    def ranks(self) -> list[int]:
        """Ranks that have a file, ascending; empty when files belong to no rank."""
        return sorted({entry.rank for entry, _ in self.files if entry.rank is not None})

    @property
    def whole(self) -> int:
        """How many of the files are whole."""
        return sum(verdict.whole for _, verdict in self.files)

    @property
    def unverifiable(self) -> int:
        """How many of them can be proved neither whole nor torn."""
        return sum(verdict.unverifiable for _, verdict in self.files)


def saves(entries: Sequence[Entry], verdicts: Mapping[str, Verdict]) -> list[SavedStep]:
    """Newest first, as ``candidate_order.moments`` orders them; one entry for each series and step."""
    found: list[SavedStep] = []
    for moment in moments(entries):
        series: dict[tuple[str, str, str, int, str], list[Entry]] = {}
        for entry in moment.entries:
            place = place_of(entry.path.rpartition("/")[0])
            key = (place, entry.format, entry.series, entry.session, entry.kind.value)
            series.setdefault(key, []).append(entry)
        for files in series.values():
            files.sort(key=lambda entry: (entry.rank is not None, entry.rank or 0, entry.path))
            found.append(SavedStep(files=tuple((one, verdicts.get(one.path, NOT_VERIFIED)) for one in files)))
    return found


def table(found: Sequence[SavedStep], scan: Scan, *, reasons: bool) -> list[str]:
    """Lines for people; ``reasons`` adds why files are not whole, and what was left aside."""
    heads = ("STEP", "EPOCH", "KIND", "RANKS", "SIZE", "FORMAT", "WHOLE", "FILE")
    rows = [heads, *(_row(save) for save in found)]
    rows += [("-", "-", "-", "-", "-", "-", "no", refusal.path) for refusal in scan.refused]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads) - 1)]
    notes = [[], *(_reasons(save) for save in found), *([one.why] for one in scan.refused)]
    lines: list[str] = []
    for row, why in zip(rows, notes, strict=True):
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*padded, row[-1]]))
        lines += [f"    {line}" for line in why if reasons]
    if reasons:
        lines += [f"left aside: {one.path}: {one.why}" for one in scan.unfinished]
    elif scan.unfinished:
        lines.append(f"{len(scan.unfinished)} unfinished left aside: --why names them")
    return [one_line(line) for line in lines]


def listed(found: Sequence[SavedStep], scan: Scan) -> list[dict[str, Any]]:
    """The JSON of ``ckpt list``: one object for each file, newest first (CONTRACT §7a)."""
    rows = [_object(entry, verdict, save.ranks) for save in found for entry, verdict in save.files]
    return rows + [_refused_object(refusal) for refusal in (*scan.refused, *scan.unfinished)]


def choice_object(choice: Choice) -> dict[str, Any]:
    """The JSON of ``ckpt choose``; fields of the point are null when there is none."""
    whys = () if isinstance(choice, NeedVerdicts) else choice.refused
    refused = [{"path": one.path, "global_step": one.global_step, "why": one.why} for one in whys]
    if not isinstance(choice, Chosen):
        return {
            "global_step": None, "epoch": None, "files": {}, "restore_ranks": "-1", "restore_ranks_map": "",
            "refused": refused,
        }  # fmt: skip
    point = choice.point
    return {
        "global_step": point.global_step,
        "epoch": point.epoch,
        "files": {str(file.rank): file.path for file in point.files},
        "restore_ranks": point.restore_ranks,
        "restore_ranks_map": point.restore_ranks_map,
        "refused": refused,
    }


def chosen_lines(point: RecoveryPoint) -> list[str]:
    """A recovery point in words: the place, then who loads what if they do not all load the same."""
    lines = [f"resume    {point.path}   {point.position}, {point.kind.value}"]
    loaders: dict[str, list[int]] = {}
    for file in point.files:
        loaders.setdefault(file.path, []).append(file.rank)
    if len(loaders) > 1:
        lines += [f"ranks     {rank_text(ranks)}: {path}" for path, ranks in loaders.items()]
    return [one_line(line) for line in lines]


def rank_text(ranks: Sequence[int]) -> str:
    """``0-3,7`` for ranks in ascending order; ``-`` for none."""
    return ",".join(rank_runs(ranks)) or "-"


def size_text(size_bytes: int) -> str:
    """``1.2 GiB``: three digits are enough for a person."""
    value, units = float(size_bytes), iter(("B", "KiB", "MiB", "GiB"))
    for unit in units:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _row(save: SavedStep) -> tuple[str, ...]:
    entry = save.first
    more = f" and {len(save.files) - 1} more" if len(save.files) > 1 else ""
    return (
        _number(entry.global_step),
        _number(entry.epoch),
        entry.kind.value,
        rank_text(save.ranks),
        size_text(sum(one.size_bytes for one, _ in save.files)),
        entry.format,
        _whole_text(save),
        entry.path + more,
    )


def _whole_text(save: SavedStep) -> str:
    if all(verdict is NOT_VERIFIED for _, verdict in save.files):
        return "?"
    if save.whole == len(save.files):
        return "yes"
    if save.unverifiable == len(save.files):
        return "unverified"
    return f"{save.whole} of {len(save.files)}" if save.whole else "no"


def _reasons(save: SavedStep) -> list[str]:
    if len(save.files) == 1:
        return [save.files[0][1].why + _for_whom(save.first)]
    torn = [f"{entry.path}: {verdict.why}" for entry, verdict in save.files if not verdict.whole]
    return [*torn, _for_whom(save.first).removeprefix("; ")] if _for_whom(save.first) else torn


def _for_whom(entry: Entry) -> str:
    """Which runs a file serves, where it says who wrote it."""
    if entry.world_size is None:
        return ""
    if entry.replicated:
        return "; replicated: serves any number of ranks"
    sharded = "sharded: " if entry.replica_group else ""
    return f"; {sharded}serves a run of {entry.world_size} ranks only"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _object(entry: Entry, verdict: Verdict, ranks: Iterable[int]) -> dict[str, Any]:
    return {
        "path": entry.path,
        "format": entry.format,
        "kind": entry.kind.value,
        "rank": entry.rank,
        "epoch": entry.epoch,
        "step": entry.step_in_epoch,
        "global_step": entry.global_step,
        "size_bytes": entry.size_bytes,
        "whole": verdict.whole,
        "why": verdict.why,
        "ranks_present": list(ranks),
    }


def _refused_object(refusal: Refusal) -> dict[str, Any]:
    return {
        "path": refusal.path, "format": None, "kind": None, "rank": None, "epoch": None, "step": None,
        "global_step": refusal.global_step, "size_bytes": None, "whole": False, "why": refusal.why,
        "ranks_present": [],
    }  # fmt: skip
