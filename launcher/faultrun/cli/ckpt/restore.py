"""``faultrun ckpt choose``: what the recovery point must serve, and the files that trainers read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.group_info import read_group_files
from faultrun.checkpoints.survey import Findings, verify_all
from faultrun.core.recover import Chosen, Need
from faultrun.core.replica_groups import agree_on_groups, pure_data_parallel
from faultrun.core.restore import choose_suppliers, recovery_info, restore_ranks_script
from faultrun.errors import ConfigError, NoWholeCheckpoint, UsageError
from faultrun.model.checkpoint import Entry
from faultrun.model.restore import Declined, ReplicaGroups, RestoreDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of ``choose`` as typed."""

    world_size: int | None
    run_id: str | None
    group_info: str | None
    lost_ranks: str
    restore_ranks_sh: str | None
    recovery_info: str | None
    trust: bool


def need(request: Request, entries: Sequence[Entry]) -> Need:
    """What to choose for. Without a world size, the files tell it. Raises UsageError, ConfigError."""
    lost = _ranks(request.lost_ranks)
    world_size = request.world_size or _world_size(entries)
    groups = _groups(request, world_size, lost)
    return Need(
        world_size=world_size,
        groups=None if groups is None else tuple(frozenset(group) for group in groups.groups),
        run_id=request.run_id,
        lost_ranks=lost,
        trust=request.trust,
    )


def write_files(request: Request, catalog: Catalog, found: Findings, wanted: Need) -> None:
    """Write ``restore_ranks.sh`` and ``recovery_info.json`` where they were asked for."""
    if request.restore_ranks_sh is None and request.recovery_info is None:
        return
    decision = _decision(catalog, found, wanted)
    if request.restore_ranks_sh is not None:
        Path(request.restore_ranks_sh).write_text(restore_ranks_script(decision), encoding="utf-8")
    if request.recovery_info is not None:
        text = recovery_info(decision)
        if isinstance(text, Declined):
            raise NoWholeCheckpoint(
                f"{request.recovery_info} not written", because=text.why, hint="faultrun ckpt list --why DIR"
            )
        Path(request.recovery_info).write_text(text + "\n", encoding="utf-8")


def _ranks(text: str) -> frozenset[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not word.isdecimal() or len(word) > 9:
            raise UsageError(
                f"bad --lost_ranks {text!r}", because=f"{word!r} is no rank", hint="--lost_ranks=8,9"
            )
    return frozenset(int(word) for word in words)


def _world_size(entries: Sequence[Entry]) -> int:
    said = {entry.world_size for entry in entries if entry.world_size is not None}
    if said:
        return max(said)
    return 1 + max((entry.rank for entry in entries if entry.rank is not None), default=0)


def _groups(request: Request, world_size: int, lost: frozenset[int]) -> ReplicaGroups | None:
    if request.group_info is None:
        return None
    files = read_group_files(request.group_info, world_size)
    agreed = agree_on_groups(files.lists, world_size, lost)
    if isinstance(agreed, Declined):
        unreadable = next(iter(files.unreadable.values()), "")
        raise ConfigError(
            f"no replica groups from {request.group_info}",
            because=agreed.why + (f"; {unreadable}" if unreadable else ""),
            hint="give --world_size, and the group_info.pb of a rank in <root>/device<rank>/",
        )
    return agreed


def _decision(catalog: Catalog, found: Findings, wanted: Need) -> RestoreDecision:
    """With every whole file of the chosen step, so that each lost rank can get a replacement of its own."""
    if not isinstance(found.choice, Chosen) or found.choice.point.global_step is None:
        return Declined(why="no checkpoint with a known step can be used")
    step = found.choice.point.global_step
    same = [one for one in found.scan.entries if one.global_step == step and one.rank is not None]
    verdicts = verify_all(catalog, same)
    available: dict[int, dict[int, str]] = {}
    for one in same:
        if one.rank is not None and verdicts[one.path].whole:
            available.setdefault(one.rank, {step: one.path})
    groups = pure_data_parallel(wanted.world_size)
    if wanted.groups is not None:
        members = sorted(tuple(sorted(group)) for group in wanted.groups)
        groups = ReplicaGroups(world_size=wanted.world_size, groups=tuple(members))
    return choose_suppliers(groups, wanted.lost_ranks, available)
