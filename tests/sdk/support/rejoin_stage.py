"""A supervisor of the test's own that keeps the survivors: it gives a dead rank's place to a newcomer.

Over the real socket, as the wire has it: ``peer_lost`` to all that live, a new page, a new store, ``join``
to the survivors at once and to the newcomer as soon as it has said hello. It works while the test waits.
"""

import contextlib
import mmap
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faultrun.model.wire import SLOT_BYTES, message
from sdk.support.lines import accept, answer
from support.machine.free_port import free_port
from support.preloaded import Forked, preloaded

PATIENCE_S = 180.0
_MOST_DEATHS = 12


@dataclass(slots=True)
class Rank:
    """One process of one rank. ``joined`` is the incarnation it was told to enter."""

    number: int
    process: Forked
    is_newcomer: bool
    log: Path
    peer: socket.socket | None = None
    joined: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None

    def said(self, kind: str) -> list[dict[str, Any]]:
        """Its messages of one kind."""
        return [one for one in self.messages if one["kind"] == kind]


@dataclass(slots=True)
class Incident:
    """A death and what came of it; times of the monotonic clock. ``incarnation`` is the one that follows."""

    rank: int
    incarnation: int
    killed_at_s: float
    seen_at_s: float
    rejoined: dict[int, dict[str, Any]] = field(default_factory=dict)
    first_steps: dict[int, float] = field(default_factory=dict)


class RejoinStage:
    """``world`` workers of ``script`` with ``words``. ``replaces``: the dead; ``damages``: their copies.

    ``refused`` are ranks that get no memory for copies.
    """

    def __init__(
        self, folder: Path, world: int, script: Path, *words: str, imports: Sequence[str] = ()
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.world = folder, world
        self.script, self.words, self.imports = script, words, imports
        self.replaces = self.repairs = True
        self.refused: frozenset[int] = frozenset()
        self.damages, self.incarnation, self.all_stayed = False, 0, False
        self.ranks: dict[int, Rank] = {}
        self.dead: list[Rank] = []
        self.incidents: list[Incident] = []
        self.on_message: Callable[[Rank, dict[str, Any]], None] = lambda rank, content: None
        self._parked: dict[int, Rank] = {}
        self._memories: dict[int, int] = {}
        self._gate = -1
        self._port = free_port()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.fspath(folder / "s"))
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._page(0)

    def begin(self) -> None:
        """Start every rank."""
        self.ranks = {rank: self._start(rank, newcomer=False) for rank in range(self.world)}

    def begin_with_memory(self) -> None:
        """The same, and let nobody through the script's gate before every rank has memory for copies."""
        os.mkfifo(self.folder / "gate")
        self.begin()
        self.wait_for(lambda: len(self.heard("snapshot")) == self.world, "asking for memory")
        for rank in self.ranks.values():
            self._say(rank, "threads")  # answered after what was said before it

        def answered() -> bool:
            return all((self.folder / f"threads_{rank}.txt").exists() for rank in self.ranks)

        self.wait_for(answered, "stacks of all threads")
        self._gate = os.open(self.folder / "gate", os.O_RDWR)

    def goes_on(self) -> None:
        """End the wait of all ranks at the step that the words name."""
        (self.folder / "go_on").touch()

    def park(self, rank: int) -> None:
        """Have a newcomer for ``rank`` wait at its first step before anybody dies."""
        parked = self._parked[rank] = self._start(rank, newcomer=True)
        self.wait_for(lambda: bool(parked.said("can_join")), "a parked newcomer")

    def wait_for(self, what: Callable[[], bool], why: str, timeout_s: float = PATIENCE_S) -> None:
        """Work until ``what`` holds."""
        until_s = time.monotonic() + timeout_s
        while not what():
            assert time.monotonic() < until_s, f"waited {timeout_s:g} s for {why}\n{self.logs()}"
            answer(self._selector, 0.05)

    def wait_ended(self) -> list[int | None]:
        """Work until every rank has ended; the exit codes."""

        def ended() -> bool:
            return all(rank.exit_code is not None for rank in self.ranks.values())

        self.wait_for(ended, "the end of all ranks")
        return [self.ranks[rank].exit_code for rank in sorted(self.ranks)]

    def wait_rejoined(self, deaths: int = 1) -> Incident:
        """Work until all ranks have made a step after so many deaths; the last incident."""

        def all_are() -> bool:
            return len(self.incidents) >= deaths and len(self.incidents[-1].first_steps) == self.world

        self.wait_for(all_are, f"every rank's first step after {deaths} deaths")
        return self.incidents[-1]

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """The messages of one kind from all that live, each with its rank."""
        return [{**one, "rank": rank.number} for rank in self.ranks.values() for one in rank.said(kind)]

    def pids(self) -> list[int]:
        """By rank."""
        return [self.ranks[rank].process.pid for rank in sorted(self.ranks)]

    def kill(self, *ranks: int) -> None:
        """SIGKILL, all at once."""
        for rank in ranks:
            (self.folder / f"killed_{rank}").write_text(repr(time.monotonic()))
            self.ranks[rank].process.kill()

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-2500:]}"
            for log in sorted(self.folder.glob("*.log"))
        )

    def close(self) -> None:
        """Kill what is left."""
        for rank in (*self.ranks.values(), *self._parked.values(), *self.dead):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.process.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):  # it may lead no group yet
                rank.process.kill()
            rank.process.wait()
            if rank.peer is not None:
                rank.peer.close()
        self._selector.close()
        self._listener.close()
        if self._gate >= 0:
            os.close(self._gate)
        for fd in self._memories.values():
            os.close(fd)
        for number in range(self.incarnation + 1):
            Path(self._store(number)).unlink(missing_ok=True)

    def _start(self, number: int, *, newcomer: bool) -> Rank:
        name = f"rank_{number}_{self.incarnation}{'_new' if newcomer else ''}.log"
        log = self.folder / name
        new = {"FAULTRUN_REJOIN": "1"} if newcomer else {}
        environ = {**os.environ, **self._environment(number), **new}
        with log.open("ab") as out:
            process = preloaded(*self.imports).start(self.script, *self.words, env=environ, log=out.fileno())
        rank = Rank(number, process, newcomer, log)
        pidfd = os.pidfd_open(process.pid)
        self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._ended(rank, pidfd))
        return rank

    def _environment(self, rank: int) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.world),
            "LOCAL_WORLD_SIZE": str(self.world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._port),
            "FAULTRUN_RUN_ID": "test-run",
            "FAULTRUN_INCARNATION": str(self.incarnation),
            "FAULTRUN_GRACE_S": "20",
            "FAULTRUN_SOCKET": os.fspath(self.folder / "s"),
            "FAULTRUN_PROGRESS": f"{self.folder}/progress_{self.incarnation}:{rank}",
            "TORCHELASTIC_ERROR_FILE": os.fspath(self.folder / f"error_{rank}.json"),
            "OMP_NUM_THREADS": "1",
            "OUT": os.fspath(self.folder),
            "CKPT": os.fspath(self.folder / "ckpt"),
        }

    def _page(self, incarnation: int) -> None:
        (self.folder / f"progress_{incarnation}").write_bytes(bytes(SLOT_BYTES * self.world))

    def _store(self, incarnation: int) -> str:
        return f"/dev/shm/faultrun_test_{os.getpid()}_{self._port}_{incarnation}"

    def _accept(self) -> None:
        accept(self._listener, self._selector, self._hear)

    def _hear(self, peer: socket.socket, content: dict[str, Any]) -> None:
        known = (*self.ranks.values(), *self._parked.values())
        if content["kind"] == "hello":
            for rank in known:
                if rank.process.pid == content["pid"]:
                    rank.peer = peer
        speaker = next((one for one in known if one.peer is peer), None)
        if speaker is not None:
            self._heard(speaker, peer, content)

    def _heard(self, rank: Rank, peer: socket.socket, content: dict[str, Any]) -> None:
        rank.messages.append(content)
        self.on_message(rank, content)
        match content["kind"]:
            case "hello":
                self._join(rank)
            case "memory_fault" if self.repairs:
                self._repair(rank)
            case "snapshot" if rank.number not in self.refused:
                fd = self._memories[rank.number] = os.memfd_create(f"snapshot-{rank.number}")
                os.ftruncate(fd, content["bytes"])
                with contextlib.suppress(OSError):  # it was killed since it asked
                    socket.send_fds(peer, [message("snapshot_fd", fds=1)], [fd])
            case "snapshot":
                self._say(rank, "snapshot_refused", why="memory is short")
            case "rejoined" if content["incarnation"] == self.incarnation:
                self.incidents[-1].rejoined[rank.number] = content
            case "step" if self.incidents and rank.number in self.incidents[-1].rejoined:
                self.incidents[-1].first_steps.setdefault(rank.number, content["at_s"])

    def _say(self, rank: Rank, kind: str, **fields: Any) -> None:
        if rank.peer is not None:
            with contextlib.suppress(OSError):
                rank.peer.send(message(kind, **fields), socket.MSG_NOSIGNAL)

    def _join(self, rank: Rank) -> None:
        """Tell this rank of the newest incarnation, once."""
        if rank.joined >= self.incarnation or rank.peer is None or self._parked.get(rank.number) is rank:
            return
        first, rank.joined = rank.joined == 0, self.incarnation
        fields = {
            "incarnation": self.incarnation,
            "store": self._store(self.incarnation),
            "page": f"{self.folder}/progress_{self.incarnation}:{rank.number}",
            "timeout_s": 30,
            **self._of_others(),
        }
        memory = self._memories.get(rank.number) if rank.is_newcomer and first else None
        if memory is None:
            self._say(rank, "join", **fields)
        else:
            if self.damages:
                _damage(memory)
            socket.send_fds(rank.peer, [message("join", **fields, fds=1)], [memory])

    def _of_others(self) -> dict[str, Any]:
        """What ``join`` says of the other ranks."""
        return {"newcomers": [] if self.all_stayed else [-1]}

    def _ended(self, rank: Rank, pidfd: int) -> None:
        at_s = time.monotonic()
        self._selector.unregister(pidfd)
        os.close(pidfd)
        rank.exit_code = rank.process.wait()
        if rank.exit_code == 0 or self.ranks.get(rank.number) is not rank or not self.replaces:
            return
        assert len(self.dead) < _MOST_DEATHS, f"rank after rank ends\n{self.logs()}"
        with contextlib.suppress(ProcessLookupError):  # its loaders hold its connections
            os.killpg(rank.process.pid, signal.SIGKILL)
        mark = self.folder / f"killed_{rank.number}"
        killed_at_s = float(mark.read_text()) if mark.exists() else at_s
        mark.unlink(missing_ok=True)
        self._replace(rank, killed_at_s, at_s)

    def freeze(self, rank: int) -> None:
        """Stop a rank for good and give its place to a newcomer: it keeps its connections, and lives."""
        self.ranks[rank].process.send_signal(signal.SIGSTOP)
        self._replace(self.ranks[rank], time.monotonic(), time.monotonic())

    def _replace(self, rank: Rank, killed_at_s: float, seen_at_s: float) -> None:
        self._end_group(rank, killed_at_s, seen_at_s)
        self.all_stayed = False
        self.dead.append(rank)
        parked = self._parked.pop(rank.number, None)
        self.ranks[rank.number] = parked or self._start(rank.number, newcomer=True)
        for one in self.ranks.values():
            self._join(one)

    def _repair(self, rank: Rank) -> None:
        """All leave the group, and the same ranks form the next."""
        now_s = time.monotonic()
        self._end_group(None, now_s, now_s, rank.number)
        self.all_stayed = True
        for one in self.ranks.values():
            self._join(one)

    def _end_group(self, dead: Rank | None, killed_at_s: float, seen_at_s: float, number: int = -1) -> None:
        living = [one for one in self.ranks.values() if one.exit_code is None and one is not dead]
        for one in living:
            self._say(one, "peer_lost", incarnation=self.incarnation, timeout_s=30)
        self.incarnation += 1
        self._page(self.incarnation)
        Path(self._store(self.incarnation)).touch()
        number = number if dead is None else dead.number
        self.incidents.append(Incident(number, self.incarnation, killed_at_s, seen_at_s))


@contextlib.contextmanager
def rejoining(
    folder: Path, script: Path, *words: str, world: int = 3, imports: Sequence[str] = ()
) -> Iterator[RejoinStage]:
    """A stage that leaves no process behind."""
    stage = RejoinStage(folder, world, script, *words, imports=imports)
    try:
        yield stage
    finally:
        stage.close()


def _damage(memory: int) -> None:
    """The last number of each copy that is not zero: of a state, not of what tells of it."""
    size = os.fstat(memory).st_size
    with mmap.mmap(memory, size) as bytes_of:
        for end in (size // 2, size):
            at = next(at for at in range(end - 1, 0, -1) if bytes_of[at])
            bytes_of[at] ^= 1
