"""Files of the memory snapshots of ranks that are gone, as those ranks would have saved them themselves.

A program of its own, started by faultrun once no worker is left; knows no framework. A snapshot's ``label``
says whose file it is to be and where, ``pickled`` is the part of a ``torch.save`` file that has to be known.
The step is the newest that every rank has, in a file or in memory (``common_step``), and only what is
missing of that step is written: nothing, where the survivors' files serve all ranks.

Standard input: one JSON object. Its descriptors are inherited. Standard output: ``saved`` and ``failed``
messages (``model.wire``), each with its ``rank``::

    {"run_id", "ranks": [0, 1], "most_steps": 1, "copies": {"0": 7, "1": 8},
     "saved": [{"rank": 0, "step": 12, "group": [0]}], "lost": [], "only_lost": false}

``lost`` are ranks of the node before, of which ``copies`` are here, and which no other node can write;
``only_lost``: those of ``ranks`` are written.
"""

import json
import mmap
import os
import struct
import sys
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from faultrun.model.wire import message
from faultrun.sdk.session import Session
from faultrun.sdk.snapshots.buffer import SnapshotOwner, Snapshots, aligned
from faultrun.sdk.stay.common_step import Holding, ToWrite, missing_of
from faultrun.sdk.worker.save_files import Folder, Position, Saved, SaveWriter, numbered

_LOCAL_HEADER_BYTES = 30
_PADDING = struct.Struct("<2sH")
_STEPS_OF_LOST = 2
_AS_OLD_AS_ZIP = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class SnapshotLabel:
    """Says whose state it is, and which file its rank would have written. ``parts``: bytes of each tensor.

    ``inode``: of the folder, by which another node sees whether it is the same there; 0: there was none.
    ``life``: as in ``Session``.
    """

    folder: str
    inode: int
    name: str
    position: Position
    world_size: int
    replica_group: tuple[int, ...]
    node: str
    parts: tuple[int, ...]
    life: int

    def packed(self) -> bytes:
        """Encode the label as it stands in a snapshot."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()

    @classmethod
    def unpacked(cls, text: bytes) -> "SnapshotLabel":
        """ValueError, KeyError or TypeError: there is none."""
        told = json.loads(text)
        told = {name: told[name] for name in cls.__slots__}
        lists = {"replica_group": tuple(told["replica_group"]), "parts": tuple(told["parts"])}
        return cls(**{**told, **lists, "position": Position(*told["position"])})


def label_of(life: int) -> bytes:
    """The label of a state that is not made a file of; ``SnapshotLabel`` takes it for none."""
    return json.dumps({"life": life}).encode()


def life_in(label: bytes) -> int:
    """ValueError, KeyError or TypeError: it does not tell one."""
    return int(json.loads(label)["life"])


def inode_of(folder: "str | Path") -> int:
    """0 where it is no folder."""
    with suppress(OSError):
        return os.stat(folder).st_ino  # noqa: PTH116 - at every copy
    return 0


class SnapshotFiles:
    """Writes the files of one run; ``fds`` are the memories by rank. Descriptors close with the process."""

    def __init__(self, run_id: str, fds: Mapping[int, int]) -> None:
        self._run_id = run_id
        self._copies: dict[int, Snapshots] = {}
        for rank, fd in fds.items():
            memory = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
            self._copies[rank] = Snapshots(memory, SnapshotOwner(run_id=run_id, rank=rank))
        self._damaged: set[tuple[int, int]] = set()

    def write_missing(
        self, saved: Iterable[Holding], ranks: frozenset[int], *, most_steps: int
    ) -> Iterable[bytes]:
        """Write what is missing of the newest common step, or of so many; a message for each file.

        A copy that is damaged is told, and not counted: an older step may still be there.
        """
        known = tuple(saved)
        while True:
            wanted = missing_of((*known, *self._holdings()), ranks, most_steps)
            unsound = [one for one in wanted if not self._copies[one.rank].is_sound(one.step)]
            for one in unsound:
                self._damaged.add((one.rank, one.step))
                yield _failed(one, "is damaged: its checksum is another")
            if not unsound:
                break
        yield from (self._told(one) for one in wanted)

    def write_lost(self, ranks: frozenset[int], own: frozenset[int]) -> Iterable[bytes]:
        """Write the copies that came from a node that is lost, but those of an earlier life than ours."""
        newest = max((self._copies[one].newest_incarnation for one in own & self._copies.keys()), default=-1)
        known = frozenset(
            rank for rank in ranks & self._copies.keys() if self._copies[rank].newest_incarnation >= newest
        )
        elsewhere = {rank: why for rank in sorted(known) if (why := self._not_shared(rank))}
        yield from (message("failed", rank=rank, why=why[:2000]) for rank, why in elsewhere.items())
        if not elsewhere:
            yield from self.write_missing((), known, most_steps=_STEPS_OF_LOST)

    def _not_shared(self, rank: int) -> str:
        """Why no other node would see a file of ``rank`` that is written here; "" where all do."""
        for step in self._copies[rank].steps:
            label = self._label(rank, step)
            if label is not None and (not label.inode or inode_of(label.folder) != label.inode):
                return f"the next node has its memory snapshot, but does not share {label.folder}"
        return ""

    def _holdings(self) -> Iterable[Holding]:
        for rank, copies in self._copies.items():
            steps = frozenset(step for step in copies.steps if (rank, step) not in self._damaged)
            labels = {step: label for step in steps if (label := self._label(rank, step)) is not None}
            if labels:
                group = labels[max(labels)].replica_group
                yield Holding(rank=rank, group=frozenset(group), kept=frozenset(labels))

    def _label(self, rank: int, step: int) -> SnapshotLabel | None:
        found = self._copies[rank].read(step)
        with suppress(ValueError, KeyError, TypeError):  # it holds no whole state: buffers alone, say
            return None if found is None else SnapshotLabel.unpacked(found.texts.label)
        return None

    def _told(self, one: ToWrite) -> bytes:
        try:
            saved = self._write(one)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            return _failed(one, f"could not be written: {error}")
        fields = {name: getattr(saved, name) for name in ("path", "step", "size_bytes", "took_s", "digest")}
        return message("saved", rank=one.rank, replica_group=saved.replica_group, memory=True, **fields)

    def _write(self, one: ToWrite) -> Saved:
        if (found := self._copies[one.rank].read(one.step)) is None:
            raise KeyError("it is gone")
        label = SnapshotLabel.unpacked(found.texts.label)
        session = Session(
            rank=one.rank,
            world_size=label.world_size,
            run_id=self._run_id,
            incarnation=label.life,
            node=label.node,
        )
        folder = Folder(directory=Path(label.folder).parent, replica_group=label.replica_group)
        return SaveWriter(folder, session).save_by_path(
            numbered(Path(label.folder) / label.name),
            label.position,
            lambda path: write_torch_file(path, found.texts.pickled, split(found.parts, label.parts)),
        )


def split(parts: memoryview, sizes: Iterable[int]) -> Iterable[memoryview]:
    """The parts one by one, where they lie."""
    at = 0
    for size_bytes in sizes:
        yield parts[at : at + size_bytes]
        at += aligned(size_bytes)


def write_torch_file(path: str, pickled: bytes, parts: Iterable[memoryview]) -> None:
    """The zip archive that ``torch.load`` reads: ``data.pkl`` and a member for each storage, at 64s."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "data.pkl", pickled)
        _add(archive, "byteorder", sys.byteorder.encode())
        for number, part in enumerate(parts):
            _add(archive, f"data/{number}", part)
        _add(archive, "version", b"3\n")


def _add(archive: zipfile.ZipFile, name: str, content: "bytes | memoryview") -> None:
    info = zipfile.ZipInfo(f"archive/{name}", _AS_OLD_AS_ZIP)
    assert archive.fp is not None, "it is open"
    begins = archive.fp.tell() + _LOCAL_HEADER_BYTES + len(info.filename) + _PADDING.size
    padding = aligned(begins) - begins
    info.extra = _PADDING.pack(b"FB", padding) + b"Z" * padding
    archive.writestr(info, content)


def _failed(one: ToWrite, why: str) -> bytes:
    return message("failed", rank=one.rank, why=f"its memory snapshot of step {one.step} {why}"[:2000])


def main() -> None:
    """Read the order from standard input, write the files, and tell of each on standard output."""
    order: dict[str, Any] = json.load(sys.stdin)
    files = SnapshotFiles(order["run_id"], {int(rank): fd for rank, fd in order["copies"].items()})
    saved = [
        Holding(rank=one["rank"], group=frozenset(one["group"]), saved=frozenset((one["step"],)))
        for one in order["saved"]
    ]
    own = frozenset(order["ranks"])
    only_lost = order.get("only_lost", False)
    written = () if only_lost else files.write_missing(saved, own, most_steps=order["most_steps"])
    for line in chain(written, files.write_lost(frozenset(order.get("lost", ())), own)):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
