"""Launchers on several machines of one switch, which share a folder: one job, its notes and its journals."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from select import POLLIN, poll
from typing import Any

from benchmarks.harness import journal
from benchmarks.harness.benchmark import NotMeasured
from benchmarks.harness.etcd import await_members, start_member
from benchmarks.harness.launched import Launched
from benchmarks.harness.launchers import LOG_DIR
from benchmarks.harness.netns import Switch, switched
from benchmarks.harness.notes import Note, NotePipe
from benchmarks.harness.procfs import clones

_DESK = 254
_LOOK_AGAIN_MS = 20


class Nodes:
    """``runs`` by the name of their machine. Times are CLOCK_MONOTONIC seconds."""

    def __init__(self, folder: Path, switch: Switch) -> None:
        self.folder, self.switch = folder, switch
        self.notes: list[Note] = []
        self.runs: dict[str, Launched] = {}
        self._pipe = NotePipe(folder / "notes")
        self._poll = poll()
        self._poll.register(self._pipe.fd, POLLIN)

    def start(self, name: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start a launcher on a machine; its workers' notes come to all the others'."""
        told = {"BENCH_NOTES": str(self._pipe.path), "GLOO_SOCKET_IFNAME": "eth0", **environ}
        with self.switch.hosts[name].inside():
            self.runs[name] = Launched(command, self.folder, told)

    def wait_for(self, reached: Callable[[], bool], *, within_s: float, what: str) -> None:
        """Return soon after ``reached`` says so. NotMeasured when it does not in time, or a launcher ends."""
        until_s = time.monotonic() + within_s
        while not reached():
            ended = [name for name, run in self.runs.items() if run.returncode is not None]
            if ended or time.monotonic() > until_s:
                why = f"{ended[0]} ended before" if ended else f"not within {within_s:g} s"
                raise NotMeasured(f"{what}: {why}")
            self.listen(_LOOK_AGAIN_MS)

    def listen(self, patience_ms: float) -> None:
        """Take the notes that come."""
        self._poll.poll(patience_ms)
        self.notes += self._pipe.read()

    def steps(self, *, after_s: float = 0.0, not_of: frozenset[int] = frozenset()) -> dict[int, float]:
        """When each rank did its first step after a moment, in a process that is none of ``not_of``."""
        first: dict[int, float] = {}
        for note in self.notes:
            if note.what == "step" and note.at_s > after_s and note.pid not in not_of:
                first[note.rank] = min(note.at_s, first.get(note.rank, note.at_s))
        return first

    def pids(self) -> frozenset[int]:
        """Every process that ever was a worker."""
        return frozenset(note.pid for note in self.notes)

    def journal(self, name: str) -> list[dict[str, Any]]:
        """What faultrun's supervisor on this machine has written, each line with its moment as ``mono_s``."""
        lines = journal.lines_of(self.folder / LOG_DIR / f"node_{name}" / "journal.jsonl")
        began_s = self._began_s(lines)
        return [{**line, "mono_s": line["run_s"] + began_s} for line in lines]

    def kill_machine(self, name: str) -> None:
        """Everything that runs there ends at once."""
        run = self.runs.pop(name)
        first = [*clones(run.pid), run.pid]  # nobody who could tell the others hears of another's end
        while alive := run.processes():
            for pid in [*first, *alive]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            first = []
        run.close()

    def close(self) -> None:
        """End all launchers together, then whatever is left."""
        for run in self.runs.values():
            if run.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(run.pid, signal.SIGTERM)
        for run in self.runs.values():
            run.close()
        self._pipe.close()

    @staticmethod
    def _began_s(lines: list[dict[str, Any]]) -> float:
        """When the run's clock was 0: a line is written after its event, some of them at once."""
        utc_s = time.time() - time.monotonic()
        written = ((datetime.fromisoformat(line["at_utc"].replace("Z", "+00:00")), line) for line in lines)
        return min((at.timestamp() - line["run_s"] - utc_s for at, line in written), default=0.0)


@contextmanager
def machines(
    folder: Path, names: Sequence[str], stores: Sequence[str]
) -> Iterator[tuple[Nodes, dict[str, int]]]:
    """Machines for launchers, and others with a member of etcd each: their processes by name."""
    with ExitStack() as stack:
        switch = switched(stack, [*names, *stores], desk=_DESK)
        members = {}
        addresses = {name: switch.addresses[name] for name in stores}
        for name in stores:
            with switch.hosts[name].inside():
                member = start_member(folder, name, addresses)
            stack.callback(member.wait)
            stack.callback(member.kill)
            members[name] = member.pid
        with switch.desk.inside():
            await_members(addresses)
        nodes = Nodes(folder, switch)
        stack.callback(nodes.close)
        yield nodes, members
