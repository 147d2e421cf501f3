"""Takes in the memory snapshots of the ranks of the node before: over TCP, into memory that outlives us.

Lines are messages of ``model.wire``; the bytes of a copy follow their line as they lie in memory.

receiver -> sender  nonce  {nonce}
sender -> receiver  hello  {seal}                 HMAC of the nonce (``model.observed.rendezvous_store``)
                    room   {rank, bytes}          -> room {} or refused {why}: memory for two copies of a rank
                    copy   {rank, step, bytes}, the bytes, then one of
                           whole {header}         -> held {} or refused {why}; the header in hexadecimal
                           torn {}                -> held {}: it was written over while it was sent
                    bye    {}                     it leaves, and its node does not

A copy is none before all of it is here and its checksum is right (``Snapshots.finish``).
"""

import hmac
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from faultrun.model.observed.rendezvous_store import meeting_seal
from faultrun.model.wire import MAX_LINE_BYTES, message, parse
from faultrun.sdk.snapshots.buffer import SnapshotFull, SnapshotOwner, Snapshots

RoomFor = Callable[[int, int], "mmap.mmap | str"]
"""Memory of a rank for so many bytes, or why there is none."""


class Rude(Exception):
    """The line is none of the protocol: its sender is cut off."""


@dataclass(slots=True)
class SnapshotReceiver:
    """Takes in copies of one run. ``ranks``: those that have memory here; it outlasts a connection."""

    run_id: str
    secret: str
    room_for: RoomFor
    ranks: dict[int, Snapshots] = field(default_factory=dict)

    def serve(
        self, stream: BinaryIO, answer: Callable[[bytes], object], proved: Callable[[], object]
    ) -> bool:
        """Until one connection ends. True: its node is still there and has said so. Rude, OSError.

        ``proved`` is called once the other side has shown that it is of the run.
        """
        nonce = os.urandom(16).hex()
        answer(message("nonce", nonce=nonce))
        if (hello := _line(stream)) is None:
            return True  # a probe of who is here
        expected = meeting_seal(self.secret, nonce)
        if hello["kind"] != "hello" or not hmac.compare_digest(
            expected, str(hello.get("seal")).encode("ascii", "replace").decode()
        ):
            raise Rude("it is not of this run")
        proved()
        while (told := _line(stream)) is not None:
            match told:
                case {"kind": "room", "rank": int(rank), "bytes": int(size)} if rank >= 0 and size > 0:
                    answer(self._room(rank, size))
                case {"kind": "copy", "rank": int(rank), "step": int(step), "bytes": int(size)}:
                    answer(self._take(stream, rank, step, size))
                case {"kind": "bye"}:
                    return True
                case _:
                    raise Rude(f"{told['kind']} means nothing")
        return False

    def _room(self, rank: int, size_bytes: int) -> bytes:
        given = self.room_for(rank, size_bytes)
        if isinstance(given, str):
            return message("refused", why=given)
        self.ranks[rank] = Snapshots(given, SnapshotOwner(run_id=self.run_id, rank=rank))
        return message("room")

    def _take(self, stream: BinaryIO, rank: int, step: int, size_bytes: int) -> bytes:
        if (copies := self.ranks.get(rank)) is None:
            raise Rude("no room was asked for")
        try:
            place = copies.make_room(step, size_bytes)
        except SnapshotFull as error:
            raise Rude(str(error)) from error
        at = 0
        while at < size_bytes:
            read = stream.readinto(place[at:])  # type: ignore[attr-defined]
            if not read:
                raise Rude("it left in the middle of a copy")
            at += read
        told = _line(stream)
        match told:
            case {"kind": "torn"}:
                return message("held")
            case {"kind": "whole", "header": str(header)}:
                if copies.finish(step, _bytes(header)):
                    return message("held")
                return message("refused", why="its checksum is another than that of what came")
            case _:
                raise Rude("a copy has no end")


def _line(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message; None when the other side has gone. Rude: it is none."""
    if not (line := stream.readline(MAX_LINE_BYTES)):
        return None
    told = parse(line) if line.endswith(b"\n") else None
    if told is None:
        raise Rude("that is no message")
    return told


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
