"""``group_info.pb``: which ranks hold the same checkpoint, as MindSpore writes it per rank.

MindSpore fills the file named by ``GROUP_INFO_FILE`` while it compiles the graph, in place, so it may be
absent, old or half written. The format is protobuf (proto2, package ``mindspore.straspb``)::

    ParallelGroupRanks { repeated uint32 dim = 1; }
    ParallelGroupItem  { required string group_name = 1;
                         required ParallelGroupRanks parallel_group_ranks = 2; }
    ParallelGroupMap   { repeated ParallelGroupItem parallel_group_item = 1;
                         required ParallelGroupRanks ckpt_restore_rank_list = 2; }

Source: ``train/node_strategy_pb2.py`` of MindSpore. This module reads the
bytes; ``core/recovery/replica_groups.py`` judges what they mean together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.reading import read_whole
from faultrun.text.protobuf import LENGTH, WireError, fields, varint

GROUP_INFO_NAME = "group_info.pb"
MAX_GROUP_INFO_BYTES = 4 << 20
"""A real file names at most some thousand ranks in some dozen groups: tens of kB."""

_MAX_RANK = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFiles:
    """What was found for a world: the lists of readable ranks, and for the others the reason."""

    lists: dict[int, tuple[int, ...]] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)


def read_group_files(group_info_file: str, world_size: int, beside: Sequence[Path] = ()) -> GroupFiles:
    """Read the files of all ranks, given that of any one: ``<root>/device{rank}/<name>``.

    ``beside`` are the roots of other nodes. A rank may have been on several: the newest file that can be
    read counts. Never raises for what a file holds: a dead rank's file may well be gone.
    """
    example = Path(group_info_file)
    roots = (example.parent.parent, *beside)
    found = GroupFiles()
    for rank in range(world_size):
        paths = [root / f"device{rank}" / example.name for root in roots]
        for path in sorted(paths, key=_changed_ns, reverse=True):
            try:
                found.lists[rank] = restore_ranks(read_whole(str(path), MAX_GROUP_INFO_BYTES))
                break
            except Unreadable as torn:
                found.unreadable.setdefault(rank, f"{path}: {torn}")
        if rank in found.lists:
            found.unreadable.pop(rank, None)
    return found


def _changed_ns(path: Path) -> int:
    """0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def restore_ranks(data: bytes) -> tuple[int, ...]:
    """Return the ranks whose checkpoint equals that of the rank whose file holds ``data``, itself included.

    Ranks may be packed or not; unknown fields are skipped. As protobuf does, a repeated
    singular message is merged (its ranks are concatenated). Unreadable when the bytes
    are empty or cut, when a rank does not fit 32 bits, or when the restore list is missing.
    """
    if not data:
        raise Unreadable("the file is empty")
    found: list[int] | None = None
    try:
        for number, value in _messages(data):
            if number == 1:
                _check_group(value)
            elif number == 2:
                found = (found or []) + _decode_ranks(value)
    except WireError as damage:
        raise Unreadable(str(damage)) from damage
    if found is None:
        raise Unreadable("there is no restore list (field 2)")
    return tuple(found)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields with a length; a known field of another wire type counts as unknown."""
    for number, wire_type, value in fields(data):
        if wire_type == LENGTH and isinstance(value, bytes):
            yield number, value


def _check_group(data: bytes) -> None:
    """A communication group of the parallel strategy is of no use here, but it shows a damaged file."""
    numbers = set()
    for number, value in _messages(data):
        numbers.add(number)
        if number == 2:
            _decode_ranks(value)
    if not numbers >= {1, 2}:
        raise Unreadable("a group has no name or no ranks")


def _decode_ranks(data: bytes) -> list[int]:
    ranks: list[int] = []
    for number, wire_type, value in fields(data):
        if number == 1 and isinstance(value, int):
            ranks.append(value)
        elif number == 1 and wire_type == LENGTH and isinstance(value, bytes):
            position = 0
            while position < len(value):
                rank, position = varint(value, position)
                ranks.append(rank)
    if ranks and max(ranks) > _MAX_RANK:
        raise Unreadable(f"{max(ranks)} is no rank: it does not fit 32 bits")
    return ranks
