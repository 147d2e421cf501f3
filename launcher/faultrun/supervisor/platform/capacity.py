"""Whether more workers can be had again: slots that are well, or nodes that wait; asked after a whole save.

The user's command says that slots are, or the platform of those that it had given up; both, where both can.
A node that was set aside asks about its own slots now and then.

Growing back stops all workers, so it waits for a save that has just been read back; but a place that was left
empty while the others train on takes a newcomer at any time.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from faultrun.checkpoints.format import Stamp
from faultrun.core.phases.platform_notices import faulty_slots
from faultrun.files import readable
from faultrun.model.checkpoint import Verdict
from faultrun.model.events import Event, IncarnationStarted
from faultrun.model.observed.agreement import OwnNodeAside
from faultrun.model.observed.elastic import (
    Elastic,
    Grow,
    NodesWaiting,
    SaveWhileNodesWait,
    SetAside,
    SlotsUsable,
)
from faultrun.model.run import Phase, RunState, Step
from faultrun.supervisor.checkpoints.first_save import Listed
from faultrun.supervisor.reactor import BackgroundTasks, Reactor

_COMMAND = "FAULTRUN_HEALTH_CHECK"
_CHECK_S = 30.0
_SOONEST_S, _LATEST_S = 0.2, 30.0
_SHARE = 0.05
_OWN_EVERY_S = 10.0
_COST = 50
"""Looking takes at most one part of so many of the time."""


class CapacityWatch:
    """Implements ``interfaces.EventListener``. Looks for a new save while a smaller world trains.

    ``looks``: name the checkpoints that lie there, and prove one. ``tasks``: those call these, and others the
    health check, which may take its time. ``environ`` is the command's, ``devices`` are those of the slots
    by the rank table.
    """

    def __init__(
        self,
        elastic: Elastic,
        reactor: Reactor,
        tasks: tuple[BackgroundTasks, BackgroundTasks],
        looks: tuple[Listed, Callable[[str], Verdict]],
        environ: Mapping[str, str],
        devices: tuple[int, ...] = (),
    ) -> None:
        self._elastic, self._reactor = elastic, reactor
        self._readings, self._checks = tasks
        self._listed, self._read_back = looks
        self._environ, self._devices = environ, devices
        self._life = -1
        self._chain = 0  # who looks again and again stops once another one began
        self._aside: tuple[SetAside, ...] = ()
        self._empty: tuple[SetAside, ...] = ()
        self._nodes_wait = False
        self._out_since: int | None = None
        self._began_s = self._took_s = 0.0
        self._seen: Mapping[str, Stamp] | None = None
        self._given_up: tuple[int, ...] = ()
        self._asked: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        """End a check that is under way: its answer is not needed any more."""
        self._life, self._out_since = -1, None
        if self._asked is not None:
            _end(self._asked)

    def tell(self, event: Event, step: Step) -> None:
        """Begin to ask for more workers as an incarnation starts or nodes wait; stop as workers end."""
        plan = step.state.plan
        self._given_up = faulty_slots(step.state)
        if step.state.incarnation != self._out_since:
            self._out_since = None
        if isinstance(event, OwnNodeAside) and self._elastic.health_check:
            self._out_since = step.state.incarnation
            self._chain += 1
            self._ask_about_own(step.state, self._chain)
        if step.state.phase is not Phase.RUNNING:
            self._life, self._nodes_wait, self._aside, self._empty = -1, False, (), ()
        elif isinstance(event, NodesWaiting) and self._elastic.grow is Grow.AT_SAVE:
            self._nodes_wait = bool(event.nodes)
            self._watch(event.incarnation)
        elif isinstance(event, IncarnationStarted) and plan is not None and plan.slots:
            self._aside, self._empty = self._hopeful(plan.slots.bad), self._hopeful(plan.slots.empty)
            self._watch(event.incarnation)
            self._ask_about_empty(event.incarnation, self._empty)

    def _watch(self, life: int) -> None:
        """Look for saves while there is a slot to take back."""
        if not self._aside and not self._nodes_wait:
            self._life = -1
        elif self._life != life:
            self._life, self._began_s, self._seen = life, self._reactor.now(), None
            self._chain += 1
            self._again(life, self._chain)

    def _ask_about_own(self, state: RunState, chain: int) -> Iterable[Event]:
        """Ask about the own slots of a node without ranks, again until it has some or another supervisor."""
        if (state.incarnation, chain) == (self._out_since, self._chain):
            self._checks.offer(lambda: self._check_own(state))
            at_s = self._reactor.now() + _OWN_EVERY_S
            self._reactor.call_at(at_s, lambda: self._ask_about_own(state, chain))
        return ()

    def _ask_about_empty(self, life: int, empty: tuple[SetAside, ...]) -> Iterable[Event]:
        """Ask about slots whose places were left empty, again until all are well or another plan is there."""
        if empty and self._empty is empty:
            self._checks.offer(lambda: self._well_of(life, empty))
            self._reactor.call_at(
                self._reactor.now() + _OWN_EVERY_S, lambda: self._ask_about_empty(life, empty)
            )
        return ()

    def _check_own(self, state: RunState) -> Iterable[Event]:
        """In the checks' thread: every slot of this node has to be well."""
        life, slots = state.incarnation, tuple(range(state.topology.nodes[0].slots))
        if all(self._passes(slot) for slot in slots) and life == self._out_since:
            yield SlotsUsable(at_s=self._reactor.now(), incarnation=life, node=state.node, slots=slots)

    def _hopeful(self, aside: tuple[SetAside, ...]) -> tuple[SetAside, ...]:
        """The slots whose health the user's command or the platform will report."""
        if self._elastic.grow is not Grow.AT_SAVE:
            return ()
        return tuple(one for one in aside if one.named or self._elastic.health_check)

    @property
    def _path(self) -> str:
        """The command may be ours (``faultrun doctor --device``), however we were found ourselves."""
        ours = str(Path(sys.executable).parent)
        return os.pathsep.join(filter(None, (self._environ.get("PATH", os.defpath), ours)))

    def _again(self, life: int, chain: int) -> Iterable[Event]:
        """Look now if none is, and later once more: less and less often, and never much of the time."""
        if (life, chain) == (self._life, self._chain):
            if self._checks.idle():
                self._readings.offer(lambda: self._look(life))
            now_s = self._reactor.now()
            interval_s = max(_SHARE * (now_s - self._began_s), _COST * self._took_s)
            at_s = now_s + min(_LATEST_S, max(_SOONEST_S, interval_s))
            self._reactor.call_at(at_s, lambda: self._again(life, chain))
        return ()

    def _look(self, life: int) -> Iterable[Event]:
        """In the readings' thread: a save that was not there before, and is whole."""
        began_s = self._reactor.now()
        there = self._listed()
        self._took_s = self._reactor.now() - began_s
        before, self._seen = self._seen, there
        if before is None or life != self._life:
            return
        fresh = [path for path, stamp in there.items() if before.get(path) != stamp]
        if whole := next((path for path in fresh if self._read_back(path).whole), ""):
            self._checks.send(lambda: self._check(life, whole))
        elif fresh:  # one that is being written; look at it again
            self._seen = {path: stamp for path, stamp in there.items() if path not in fresh}
        yield from ()

    def _check(self, life: int, path: str) -> Iterable[Event]:
        """In the checks' thread: ask about each slot."""
        if self._nodes_wait and life == self._life:
            yield SaveWhileNodesWait(at_s=self._reactor.now(), incarnation=life, path=path)
        yield from self._well_of(life, self._aside, path)

    def _well_of(self, life: int, aside: tuple[SetAside, ...], path: str = "") -> Iterable[Event]:
        """In the checks' thread: those of ``aside`` that are well now."""
        well = tuple(one for one in aside if self._is_well(one))
        for node in dict.fromkeys(one.node for one in well):
            if life == self._life or aside is self._empty:
                slots = tuple(one.slot for one in well if one.node == node)
                at_s = self._reactor.now()
                yield SlotsUsable(at_s=at_s, incarnation=life, node=node, slots=slots, path=path)

    def _is_well(self, one: SetAside) -> bool:
        """Whether the command ends with 0 in time, and the platform has nothing against the slot."""
        if one.slot in self._given_up:
            return False
        return not self._elastic.health_check or self._passes(one.slot)

    def _passes(self, slot: int) -> bool:
        """The command's exit code comes by a pipe: the waiting thread may be late."""
        about = {_COMMAND: self._elastic.health_check, "FAULTRUN_SLOT": str(slot), "PATH": self._path}
        device = self._devices[slot] if slot < len(self._devices) else slot
        about["DEVICE_ID"] = str(device)
        told, tell = os.pipe()
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f'(eval "${_COMMAND}") >/dev/null 2>&1; echo $?'],
                stdin=subprocess.DEVNULL,
                stdout=tell,
                stderr=subprocess.DEVNULL,
                env={**self._environ, **about},
                start_new_session=True,
            )
        except OSError:
            os.close(tell)
            os.close(told)
            return False
        os.close(tell)
        self._asked = process
        ready = readable(_CHECK_S, told)
        said = os.read(told, 16) if ready else b""
        os.close(told)
        if not ready:
            _end(process)
        self._asked = None
        process.wait()
        return said.strip() == b"0"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """It has not answered, so it was not reaped: its number still means its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
