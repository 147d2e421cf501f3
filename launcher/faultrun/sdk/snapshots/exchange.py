"""The program beside a supervisor of several nodes that has ranks' memory snapshots kept by the next node.

Started at the first copy, in each incarnation anew; ends with its supervisor. One thread takes in what the
node before sends, one sends to the next. Standard input is a socket of the supervisor's (``model.wire``):

supervisor -> us    begin  {run_id, secret, host}
                    rank   {rank, fds}            a descriptor: copies of this rank are to be sent
                    next   {at}                   to the node that listens there
                    room   {rank, fds}            an answer, with the memory, or
                    no_room {rank, why}
                    end    {}                     the node lives on, and this incarnation does not
us -> supervisor    listens {port}
                    room   {rank, bytes}          memory is wanted for the copies of another node's rank
                    alone  {ranks}                the node before has gone without a word: it had these
                    beside {}                     it is there (again)
                    ended  {why}                  no copies leave any more
"""

import contextlib
import mmap
import os
import queue
import socket
import sys
import threading
import time
from typing import Any

from faultrun.model.wire import MAX_LINE_BYTES, message, parse
from faultrun.sdk.snapshots.buffer import SnapshotOwner, Snapshots
from faultrun.sdk.snapshots.receiver import Rude, SnapshotReceiver
from faultrun.sdk.snapshots.sender import NotHeld, SnapshotSender

_NICE = 5
_CONNECT_S = 10.0
_ANSWER_S = 30.0
"""A copy not taken in for so long is not waited for any more; see also ``sdk.torch.snapshots.next_node``."""
_LOOK_S, _SELDOM_S = 0.002, 0.005
_SOON = 100
_MOST_FDS = 8
_ROOM_S, _BYE_S = 10.0, 0.5
_IDLE_S, _PROBES = 1, 3
"""A host that has died says nothing: it is asked each second, and three times in vain is gone.

The kernel asks nothing while an answer of ours is on its way to that host, and then has its own limit."""


class Exchange:
    """Sends and takes in the snapshots of one node in one incarnation. ``supervisor`` is the other end."""

    def __init__(self, supervisor: socket.socket, told: dict[str, Any]) -> None:
        self._supervisor = supervisor
        self._run_id, self._secret = str(told["run_id"]), str(told["secret"])
        host = str(told["host"])
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, int(told["port"])), family=family)
        self._own: dict[int, tuple[Snapshots, int]] = {}
        self._rooms: queue.SimpleQueue[mmap.mmap | str] = queue.SimpleQueue()
        self._next = ""
        self._is_ending = threading.Event()
        self._sender: threading.Thread | None = None
        self._receiver = SnapshotReceiver(self._run_id, self._secret, self._room_for)

    def run(self) -> None:
        """Until the supervisor says so, or is gone."""
        threading.Thread(target=self._take_in, daemon=True).start()
        self._tell("listens", port=self._listener.getsockname()[1])
        buffer, fds = b"", list[int]()
        while True:
            data, came, _, _ = socket.recv_fds(self._supervisor, MAX_LINE_BYTES, _MOST_FDS)
            fds += came
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for content in filter(None, map(parse, lines)):
                if content["kind"] == "end":
                    self._is_ending.set()
                    if self._sender is not None:
                        self._sender.join(_BYE_S)
                    return
                self._obey(content, fds)

    def _obey(self, told: dict[str, Any], fds: list[int]) -> None:
        match told:
            case {"kind": "rank", "rank": int(rank)}:
                memory = _mapped(fds.pop(0))
                self._own[rank] = (
                    Snapshots(memory, SnapshotOwner(run_id=self._run_id, rank=rank)),
                    len(memory),
                )
            case {"kind": "next", "at": str(at)} if self._sender is None:
                self._next = at
                self._sender = threading.Thread(target=self._send_on, daemon=True)
                self._sender.start()
            case {"kind": "room"}:
                self._rooms.put(_mapped(fds.pop(0)))
            case {"kind": "no_room", "why": str(why)}:
                self._rooms.put(why)

    def _send_on(self) -> None:
        host, _, port = self._next.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S) as connection:
                connection.settimeout(_ANSWER_S)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with connection.makefile("rb") as stream:
                    sender = SnapshotSender(stream, connection.sendall, self._secret)
                    self._send_all(sender)
                    sender.say_bye()
        except (OSError, ValueError, NotHeld) as error:
            self._tell("ended", why=f"{self._next}: {error}"[:500])

    def _send_all(self, sender: SnapshotSender) -> None:
        quiet = 0
        while not self._is_ending.is_set():
            sent = False
            for rank, (copies, size_bytes) in tuple(self._own.items()):
                sender.keep(rank, copies, size_bytes)
                sent |= sender.send_newest(rank)
            quiet = 0 if sent else quiet + 1
            # A rank may wait for its copy to have left; one that copies seldom is looked at seldom.
            time.sleep(_LOOK_S if quiet < _SOON else _SELDOM_S)

    def _take_in(self) -> None:
        """There is one sender for us; strangers are cut off soon."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # it is gone again, or no descriptor is left
                time.sleep(_SELDOM_S)
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            notice_a_dead_host(connection)
            connection.settimeout(_CONNECT_S)
            proved = False

            def prove() -> None:
                nonlocal proved
                proved = True
                connection.settimeout(None)
                self._tell("beside")

            stays = True
            try:
                with connection.makefile("rb") as stream:
                    stays = self._receiver.serve(stream, connection.sendall, prove)
            except (Rude, OSError):
                stays = not proved
            if not stays:
                self._tell("alone", ranks=sorted(self._receiver.ranks))

    def _room_for(self, rank: int, size_bytes: int) -> "mmap.mmap | str":
        self._tell("room", rank=rank, bytes=size_bytes)
        with contextlib.suppress(queue.Empty):
            return self._rooms.get(timeout=_ROOM_S)
        return "its supervisor does not answer"

    def _tell(self, kind: str, **fields: Any) -> None:
        with contextlib.suppress(OSError):
            self._supervisor.sendall(message(kind, **fields))


def _mapped(fd: int) -> mmap.mmap:
    try:
        return mmap.mmap(fd, 0)
    finally:
        os.close(fd)


def notice_a_dead_host(connection: socket.socket) -> None:
    """Have the reader be told within seconds that the other host is gone, not after minutes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _IDLE_S * (1 + _PROBES))


def main() -> None:
    """Serve the supervisor at standard input until it ends the exchange, or is gone."""
    os.nice(_NICE)
    supervisor = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    line = b""
    while not line.endswith(b"\n"):
        if not (piece := supervisor.recv(1)):
            return
        line += piece
    if (told := parse(line)) is not None and told["kind"] == "begin":
        Exchange(supervisor, told).run()
    os._exit(0)  # threads wait in the kernel


if __name__ == "__main__":
    main()
