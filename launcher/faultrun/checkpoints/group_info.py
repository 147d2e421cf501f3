"""``group_info.pb``: which ranks hold the same checkpoint, as MindSpore writes it per rank.

MindSpore fills the file named by ``GROUP_INFO_FILE`` while it compiles the
graph, in place, so it may be absent, old or half written. The format is
protobuf (proto2, package ``mindspore.straspb``)::

    ParallelGroupRanks { repeated uint32 dim = 1; }
    ParallelGroupItem  { required string group_name = 1;
                         required ParallelGroupRanks parallel_group_ranks = 2; }
    ParallelGroupMap   { repeated ParallelGroupItem parallel_group_item = 1;
                         required ParallelGroupRanks ckpt_restore_rank_list = 2; }

Source: ``train/node_strategy_pb2.py`` of MindSpore. This module reads and
writes the bytes; ``core/replica_groups.py`` judges what they mean together.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from faultrun.checkpoints.protobuf_wire import (
    LENGTH,
    WireError,
    encode_message,
    encode_varint,
    fields,
    varint,
)

FILE_NAME = "group_info.pb"
MAX_BYTES = 4 << 20
"""A real file names at most some thousand ranks in some dozen groups: tens of kB."""

_MAX_RANK = 2**32 - 1


class GroupInfoError(Exception):
    """The bytes are not a whole ``ParallelGroupMap``; the message is a sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommGroup:
    """A communication group of the parallel strategy; informative, not used for restoring."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """One rank's file. ``restore_ranks``: whose checkpoint equals this rank's, itself included."""

    restore_ranks: tuple[int, ...]
    groups: tuple[CommGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFiles:
    """What was found for a world: the lists of readable ranks, and for the others the reason."""

    lists: dict[int, tuple[int, ...]] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)


def read_group_files(group_info_file: str, world_size: int) -> GroupFiles:
    """Read the files of all ranks, given that of any one: ``<root>/device{rank}/<name>``.

    Never raises for what a file holds: a dead rank's file may well be gone.
    """
    example = Path(group_info_file)
    found = GroupFiles()
    for rank in range(world_size):
        path = example.parent.parent / f"device{rank}" / example.name
        try:
            found.lists[rank] = decode_group_info(_read(path)).restore_ranks
        except GroupInfoError as torn:
            found.unreadable[rank] = f"{path}: {torn}"
        except OSError as error:
            found.unreadable[rank] = f"{path}: {error.strerror or error}"
    return found


def decode_group_info(data: bytes) -> GroupInfo:
    """Decode one file, packed or unpacked, unknown fields skipped.

    As protobuf does, a repeated singular message is merged (its ranks are
    concatenated). GroupInfoError when the bytes are empty or cut, when a rank
    does not fit 32 bits, or when the restore list is missing.
    """
    if not data:
        raise GroupInfoError("the file is empty")
    try:
        return _decode_map(data)
    except WireError as damage:
        raise GroupInfoError(str(damage)) from damage


def encode_group_info(info: GroupInfo) -> bytes:
    """Encode as MindSpore does: the groups, then the restore list, ranks not packed."""
    items = b"".join(
        encode_message(
            1, encode_message(1, group.name.encode()) + encode_message(2, _encode_ranks(group.ranks))
        )
        for group in info.groups
    )
    return items + encode_message(2, _encode_ranks(info.restore_ranks))


def _read(path: Path) -> bytes:
    """Read a regular file of bounded size; a pipe in its place must not block the supervisor."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise GroupInfoError("not a regular file")
        if status.st_size > MAX_BYTES:
            raise GroupInfoError(f"{status.st_size} bytes is no group_info (limit {MAX_BYTES})")
        parts: list[bytes] = []
        left = MAX_BYTES
        while left > 0 and (part := os.read(handle, min(left, 1 << 16))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(handle)


def _decode_map(data: bytes) -> GroupInfo:
    groups: list[CommGroup] = []
    restore_ranks: list[int] | None = None
    for number, value in _messages(data):
        if number == 1:
            groups.append(_decode_group(value))
        elif number == 2:
            restore_ranks = (restore_ranks or []) + _decode_ranks(value)
    if restore_ranks is None:
        raise GroupInfoError("there is no restore list (field 2)")
    return GroupInfo(restore_ranks=tuple(restore_ranks), groups=tuple(groups))


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields with a length; a known field of another wire type counts as unknown."""
    for number, wire_type, value in fields(data):
        if wire_type == LENGTH and isinstance(value, bytes):
            yield number, value


def _decode_group(data: bytes) -> CommGroup:
    name: str | None = None
    ranks: list[int] | None = None
    for number, value in _messages(data):
        if number == 1:
            name = value.decode("utf-8", "replace")
        elif number == 2:
            ranks = (ranks or []) + _decode_ranks(value)
    if name is None or ranks is None:
        raise GroupInfoError("a group has no name or no ranks")
    return CommGroup(name=name, ranks=tuple(ranks))


def _decode_ranks(data: bytes) -> list[int]:
    ranks: list[int] = []
    for number, wire_type, value in fields(data):
        if number == 1 and isinstance(value, int):
            ranks.append(value)
        elif number == 1 and wire_type == LENGTH and isinstance(value, bytes):
            ranks += _unpacked(value)
    if ranks and max(ranks) > _MAX_RANK:
        raise GroupInfoError(f"{max(ranks)} is no rank: it does not fit 32 bits")
    return ranks


def _unpacked(data: bytes) -> list[int]:
    ranks: list[int] = []
    position = 0
    while position < len(data):
        rank, position = varint(data, position)
        ranks.append(rank)
    return ranks


def _encode_ranks(ranks: tuple[int, ...]) -> bytes:
    return b"".join(b"\x08" + encode_varint(rank) for rank in ranks)
