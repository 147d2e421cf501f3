"""``faultrun ckpt choose``: what the recovery point must serve, and the files that trainers read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.find import Findings, verify_all
from faultrun.checkpoints.formats.mindspore.group_info import read_group_files
from faultrun.core.recovery.choose import Chosen
from faultrun.core.recovery.need import Doubt, Need, Whose, World
from faultrun.core.recovery.replica_groups import Disagreement, Group, agree_on_groups
from faultrun.errors import ConfigError, NoWholeCheckpoint, UsageError
from faultrun.journal.logdir import beside
from faultrun.model.checkpoint import Entry, RecoveryPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseOptions:
    """The options of ``choose`` as typed."""

    world_size: int | None
    run_id: str | None
    group_info: str | None
    lost_ranks: str
    restore_ranks_sh: str | None
    recovery_info: str | None
    trust: bool


def need(request: ChooseOptions, entries: Sequence[Entry]) -> Need:
    """What to choose for. Without a world size, the files tell it. Raises UsageError, ConfigError."""
    lost = _ranks(request.lost_ranks)
    world_size = request.world_size or _world_size(entries)
    world = World(size=world_size, groups=_groups(request, world_size, lost))
    doubt = Doubt(lost_ranks=lost, trust=request.trust)
    return Need(world=world, whose=Whose(run_id=request.run_id), doubt=doubt)


def write_files(request: ChooseOptions, catalog: Catalog, found: Findings, wanted: Need) -> None:
    """Write ``restore_ranks.sh`` and ``recovery_info.json`` where they were asked for."""
    if request.restore_ranks_sh is None and request.recovery_info is None:
        return
    point = found.choice.point if isinstance(found.choice, Chosen) else None
    if point is not None and point.global_step is None:
        point = None
    if request.restore_ranks_sh is not None:
        Path(request.restore_ranks_sh).write_text(_restore_ranks_script(point), encoding="utf-8")
    if request.recovery_info is not None:
        try:
            text = _recovery_info(point, catalog, found, wanted)
        except ValueError as declined:
            raise NoWholeCheckpoint(
                f"{request.recovery_info} not written",
                because=str(declined),
                hint="faultrun ckpt list --why DIR",
            ) from declined
        Path(request.recovery_info).write_text(text + "\n", encoding="utf-8")


def _restore_ranks_script(point: RecoveryPoint | None) -> str:
    """``restore_ranks.sh`` as mindx_elastic 2.0.4 sources it: the map is quoted, -1 means no restore."""
    if point is None:
        return "export RESTORE_RANKS=-1\n"
    return (
        f"export RESTORE_RANKS={point.restore_ranks}\nexport RESTORE_RANKS_MAP='{point.restore_ranks_map}'\n"
    )


def _recovery_info(point: RecoveryPoint | None, catalog: Catalog, found: Findings, wanted: Need) -> str:
    """``recovery_info.json`` of 2023: ``{"normal_rank": {"0": 8}, "abnormal_rank": {"8": 0}}``.

    ``abnormal_rank`` gives each lost rank a replacement of its own group, with a whole file of
    the chosen step, and ``normal_rank`` is its inverse, so none replaces two: ValueError,
    with the reason, when a group lost more members than it has left.
    """
    if point is None:
        raise ValueError("no checkpoint with a known step can be used")
    same = [
        one
        for one in found.scan.entries
        if one.reached == point.global_step
        and one.rank is not None
        and one.rank not in wanted.doubt.lost_ranks
    ]
    verdicts = verify_all(catalog, same)
    able = {one.rank for one in same if verdicts[one.path].whole}
    replacement: dict[int, int] = {}
    for members in json.loads(point.restore_ranks_map):
        group = [int(rank) for rank in members.split(",")]
        lost = [rank for rank in group if rank in wanted.doubt.lost_ranks]
        healthy = [rank for rank in group if rank in able]
        if len(lost) > len(healthy):
            raise ValueError(
                f"replica group {{{members}}} lost {len(lost)} ranks "
                f"and has {len(healthy)} to replace them one by one"
            )
        replacement.update(zip(lost, healthy, strict=False))
    by_healthy = sorted((healthy, lost) for lost, healthy in replacement.items())
    return json.dumps(
        {
            "normal_rank": {str(healthy): lost for healthy, lost in by_healthy},
            "abnormal_rank": {str(lost): replacement[lost] for lost in sorted(replacement)},
        }
    )


def _ranks(text: str) -> frozenset[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not word.isdecimal() or len(word) > 9:
            because = f"{word!r} is no rank"
            raise UsageError(f"bad --lost_ranks {text!r}", because=because, hint="--lost_ranks=8,9")
    return frozenset(int(word) for word in words)


def _world_size(entries: Sequence[Entry]) -> int:
    if said := {entry.world_size for entry in entries if entry.world_size is not None}:
        return max(said)
    return 1 + max((entry.rank for entry in entries if entry.rank is not None), default=0)


def _groups(request: ChooseOptions, world_size: int, lost: frozenset[int]) -> tuple[Group, ...] | None:
    if request.group_info is None:
        return None
    roots = beside(Path(request.group_info).absolute().parent.parent)
    files = read_group_files(request.group_info, world_size, roots)
    agreed = agree_on_groups(files.lists, world_size, lost)
    if isinstance(agreed, Disagreement):
        unreadable = next(iter(files.unreadable.values()), "")
        because = agreed.why + (f"; {unreadable}" if unreadable else "")
        hint = "give --world_size, and the group_info.pb of a rank in <root>/device<rank>/"
        raise ConfigError(f"no replica groups from {request.group_info}", because=because, hint=hint)
    return agreed
