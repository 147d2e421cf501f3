"""One standby, seen from the supervisor: started, looked after, given a rank.

The other end is ``faultrun.standby``, which runs in the process and describes
the messages. Nothing here blocks: the channel's descriptor is for the reactor.
"""

import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faultrun.model.observed.standby import StandbyWish
from faultrun.workers.fork_server import ForkServer
from faultrun.workers.launch import Launch
from faultrun.workers.priority import Priority
from faultrun.workers.proc_reader import state_of
from faultrun.workers.process import Process, start

PROBED = 73
"""Exit code of a probe that came to the hook; ``faultrun.standby`` has the same number."""

_LISTEN_PATIENCE_S = 0.06
"""How long other ranks wait for rank 0 to listen: what torch's back-off would cost at the least is 0.25 s."""

_CHANNEL = "FAULTRUN_STANDBY_CHANNEL"
_MOST_BYTES = 1 << 20
_EXPENDABLE = 1000  # oom_score_adj(5): the first that the kernel may end when memory is short


def probe(launch: Launch, log: Path, program_at: int) -> Process:
    """Ask this Python, with these options and this environment, whether it comes to our hook at all.

    It executes ``-c pass`` in place of the program, so that a Python that
    does not come there does nothing. Ends with ``PROBED`` when it does.
    """
    argv = (*launch.argv[:program_at], "-c", "pass")
    return start(replace(_hooked(launch, "probe"), argv=argv, stdout=log, stderr=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where rank 0 listens; ``address`` is empty on its own machine."""

    address: str
    port: int


class Standby:
    """A process that may become the worker that ``launch`` describes. Owns its end of the channel."""

    def __init__(
        self,
        launch: Launch,
        wish: StandbyWish | None,
        log: Path,
        *,
        may_rise: bool,
        forks: ForkServer | None = None,
    ) -> None:
        """Start it, at low priority; of ``wish`` only its kind counts. OSError when that is impossible.

        None: it runs the program at once, and says nothing over the channel. ``forks`` starts it, if given.
        """
        self.launch = launch
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            started = replace(launch, stdout=log, stderr=None, at_once=False)
            if wish is not None:
                more = json.dumps({"imports": wish.imports, "sets": wish.sets})
                told = f"{theirs.fileno()} {wish.framework} {more}"
                started = replace(_hooked(started, told), keep=(theirs.fileno(),))
            try:
                self.process = start(started, forks)
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        self._channel = ours
        self._buffer = b""
        self._priority = Priority(self.process.pid, may_rise=may_rise)
        self._oom_score = _oom_score(self.process.pid)
        self._priority.lower()
        _set_oom_score(self.process.pid, str(_EXPENDABLE))

    @property
    def fd(self) -> int:
        """What to wait on for messages."""
        return self._channel.fileno()

    def messages(self) -> tuple[dict[str, Any], ...] | None:
        """What it said since the last time; None: the channel has ended."""
        try:
            data = self._channel.recv(_MOST_BYTES)
        except BlockingIOError:
            return ()
        except OSError:
            data = b""
        if not data:
            return None
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return tuple(json.loads(line) for line in lines)

    def look_alive(self) -> None:
        """Its turn may come soon: full priority, and a sign of life is asked for."""
        self._priority.restore()
        _set_oom_score(self.process.pid, self._oom_score)
        self._send({"kind": "look"})

    def hand_over(
        self, new: Launch, arguments: tuple[str, ...], listener: Listener | None, *, quietly: bool = False
    ) -> bool:
        """Have it become ``new``; False when it cannot. It answers ``taken``, or never.

        ``arguments`` are the program's own; it waits a moment until a process listens at ``listener``.
        ``quietly``: it gives way to all others until ``look_alive``.
        """
        old = self.launch
        stderr = new.stderr or new.stdout
        alike = new.memory_nodes == old.memory_nodes and len(new.cpus) == len(old.cpus)  # as many threads
        if not alike or state_of(self.process.pid) in ("", "t", "T", "Z", "X"):  # none would answer
            return False
        program = len(new.argv) - len(arguments)
        if new.argv[:program] != old.argv[:program]:
            return False
        try:
            for thread in Path(f"/proc/{self.process.pid}/task").iterdir() if new.cpus != old.cpus else ():
                os.sched_setaffinity(int(thread.name), new.cpus)
            new.stdout.touch()  # there, as a fresh worker's are, for readers that follow them
            stderr.touch()
        except OSError:
            return False
        if not quietly:
            self._priority.restore()
            _set_oom_score(self.process.pid, self._oom_score)
        return self._send(
            {
                "kind": "go",
                "set": {name: value for name, value in new.env.items() if old.env.get(name) != value},
                "unset": sorted(old.env.keys() - new.env.keys()),
                "folder": new.cwd or str(Path.cwd()),
                "stdout": str(new.stdout.absolute()),
                "stderr": str(stderr.absolute()),
                "arguments": list(arguments),
                "address": listener.address if listener else "",
                "port": listener.port if listener else 0,
                "patience_s": _LISTEN_PATIENCE_S,
            }
        )

    def memory_bytes(self) -> int:
        """Its proportional set size, 0 when the kernel does not say."""
        try:
            text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        except OSError:
            return 0
        return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)

    def close(self) -> None:
        """Let go of the channel; a standby that still waits ends."""
        self._channel.close()

    def _send(self, message: Mapping[str, object]) -> bool:
        """All or nothing: what does not fit into the socket's buffer at once is not waited for."""
        data = json.dumps(message).encode() + b"\n"
        with suppress(OSError):
            return self._channel.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) == len(data)
        return False


def _hooked(launch: Launch, told: str) -> Launch:
    """The worker's, in no hurry, with what its hook is told."""
    return replace(launch, env={**launch.env, _CHANNEL: told}, hooked=True, at_once=False)


def _oom_score(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/oom_score_adj").read_text().strip()
    return "0"


def _set_oom_score(pid: int, score: str) -> None:
    try:
        Path(f"/proc/{pid}/oom_score_adj").write_text(score)
    except OSError:
        return
