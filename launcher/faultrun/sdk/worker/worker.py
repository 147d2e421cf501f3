"""The one worker that this process is: made by the first call, a no-op outside faultrun.

Everything a script calls from ``faultrun.sdk`` ends here. Ties the session, the progress slot and the helper
thread together, and sees to it that a process with a request pending does not end before it is answered.
"""

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from faultrun.errors import FaultrunError
from faultrun.model.observed.progress import WorkPhase
from faultrun.model.wire import SIGNALS_FILE
from faultrun.sdk.session import ResumePoint, Session, read_identity, read_session
from faultrun.sdk.stay.next_group import Join
from faultrun.sdk.worker.death_note import answer_with_stacks, tells_of_a_dead_peer, write_note
from faultrun.sdk.worker.helper_thread import LATE_LINE_S, Helper
from faultrun.sdk.worker.interpreter_exit import ExitWatch
from faultrun.sdk.worker.programs import RankPrograms, this_program
from faultrun.sdk.worker.progress_slot import ProgressSlot
from faultrun.sdk.worker.save_files import maker_of
from faultrun.sdk.worker.state_provider import StateProvider
from faultrun.sdk.worker.stop_signals import child_was_told
from faultrun.sdk.worker.training_stages import Stages, told

if TYPE_CHECKING:
    from faultrun.testing import Injector

_OUTSIDE = "its script has ended outside of a step that can be taken back"
_LINGER_S = 2.0
"""How long a script that a peer's proposal has ended waits for faultrun's request, milliseconds away."""

_LINGER_UNFINISHED_S, _LEAVES_WITHIN_S, _LOOK_S = 0.3, 1800.0, 0.05
_SAYS_S = 2.0

_exit_watch = ExitWatch() if read_session(os.environ) and multiprocessing.parent_process() is None else None


class Worker:
    """This process as faultrun sees it. Made in the main thread, before the training loop."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.providers = 0
        """How often the script has said what holds its state."""
        self.stages = Stages(session.point)
        self._pid = os.getpid()
        self._programs = RankPrograms(session, self._pid)
        self._slot = ProgressSlot(session.progress)
        self._helper = Helper(session, self._slot)
        self.regroup = self._helper.regroup
        """What is heard of the process group."""
        self.say = self._helper.say
        """Tell the supervisor, as soon as it listens. Any thread."""
        self.joined_save = self._slot.joined_save
        """How many ranks of this node have agreed to the step that was named last."""
        self._error: BaseException | None = None
        self._faults = _faults()
        self._previous_hook = sys.excepthook
        sys.excepthook = self._uncaught
        self._helper.stacks = answer_with_stacks(session)
        self._exit_watch = (_exit_watch or ExitWatch()) if self._slot.is_there else None
        if self._exit_watch is not None:
            self._exit_watch.begin()
        _as_the_end_begins(self._leaving)
        atexit.register(self._at_exit)  # what the script registers later runs earlier, and is part of its job
        os.register_at_fork(after_in_child=self._in_child)
        self._helper.start()
        if self._faults is not None:
            self._faults.at("startup")

    def point_for(self, folder: str | os.PathLike[str] = "") -> ResumePoint | None:
        """Where this program, which saves in ``folder`` ("": it tells later), is to go on. Main thread.

        None, with a line in the log, also where the point is of another program below this rank.
        """
        point = self.session.point
        maker = maker_of(point.path) if point is not None else None
        why = self._programs.why_not(this_program(folder), maker)
        if why and point is not None:
            told(f"{point.path} is of another program below this rank ({why}): this one begins without it")
            self.session.point, self.stages = None, Stages(None)
            if self._programs.is_beside:
                self._slot.moves_to("")
        return self.session.point

    def moves_to(self, join: Join) -> None:
        """This process lives on in the next incarnation. Main thread."""
        for path, fd in ((join.stdout, 1), (join.stderr, 2)):
            if path:
                _speak_into(path, fd)
        self.session.error_file = join.error_file or self.session.error_file
        self.session.moves_to(join.incarnation, join.page)
        self._slot.moves_to(join.page)
        self._helper.begins_again()

    @property
    def _leads(self) -> bool:
        """Whether it is the rank's own process. One that a shell or a script has started decides nothing."""
        return os.getsid(0) == self._pid

    def keep(self, provider: StateProvider) -> None:
        """From now on ``provider`` holds the state; SIGTERM means "save and leave".

        FaultrunError outside the main thread.
        """
        self._helper.pipe.take_sigterm()
        self._helper.provider = provider
        self.providers += 1

    @property
    def provider(self) -> StateProvider | None:
        """Who holds the state now."""
        return self._helper.provider

    @property
    def twice(self) -> str:
        """Why no newcomer finds the place in what the script trains now; "" if one can."""
        again = "the script protects more than one training, and a newcomer begins with the first"
        return again if self.providers > 1 else ""

    def tells_memory(self, news: Callable[[], dict[str, Any] | None]) -> None:
        """Tell what this process needs at most, now and whenever ``news`` says more; asked once a second."""
        self._helper.memory = news
        self._helper.tell_memory()

    def step(self, step: int, epoch: int | None) -> None:
        """``step`` is finished."""
        self._slot.stepped(step, -1 if epoch is None else epoch)
        first = self._helper.step is None
        self._helper.step = (step, epoch)
        self._helper.pipe.rings_here()
        if first:
            self.session.has_stepped = True
            self._programs.stepped()
            self._helper.pipe.poke()
        if self._faults is not None:
            self._faults.at("step", step)

    def works_at(self, phase: WorkPhase) -> WorkPhase:
        """What this rank does from now on; returns what it did before. A microsecond."""
        before = self._slot.works_at(phase)
        if self._faults is not None and phase is WorkPhase.SAVING:
            self._faults.at("save", self._helper.step[0] if self._helper.step is not None else None)
        return before

    def done(self, ends_within_s: float) -> None:
        """Nothing is left to do; whatever ends this process by then, SIGALRM after that, is no failure."""
        if threading.current_thread() is not threading.main_thread():
            because = "the main thread says when everything is done, and this is another one"
            hint = "call it as the last line of the script"
            raise FaultrunError("faultrun.sdk.done() cannot be called here", because=because, hint=hint)
        self._save_for_the_lost()
        self._say_done(ends_within_s)

    def agree_on_save(self, newest: int) -> int:
        """The step that all ranks of this node save, where a save serves only beside those of the others."""
        return self._slot.agree_on_save(newest, self.session.local_world_size)

    def agree_on_interval(self, steps: int) -> int:
        """Every how many steps to copy the state, so that all ranks of this node copy the same ones."""
        return max(steps, self._slot.agree_on_interval(steps))

    def should_stop(self) -> bool:
        """Whether the loop is to end here, at the same step as on every other rank of this node."""
        helper = self._helper
        if not helper.cooperative:
            self._helper.pipe.take_sigterm()
            helper.cooperative = True
        asked = helper.requested.is_set()
        step = helper.step[0] if helper.step is not None else 0
        if not self._slot.is_there:
            return asked
        if asked:
            self._slot.propose_stop(step + 1)
        return 0 < self._slot.agreed_stop() <= step

    @property
    def is_stopping(self) -> bool:
        """Whether the run is being stopped, as far as this process was told."""
        asked = self._helper.requested.is_set() and self._helper.stops
        return asked or bool(self._slot.agreed_stop()) or child_was_told()

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Instead of ending at once: if a peer died first, the request to save is on its way."""
        at_utc = time.time()
        self._previous_hook(kind, error, trace)
        if os.getpid() == self._pid and isinstance(error, Exception | KeyboardInterrupt):
            self.failing(error, at_utc)

    def failing(self, error: BaseException, at_utc: float) -> None:
        """The main thread ends of ``error``, in a moment. Returns when its state need not be saved."""
        self._error = error
        write_note(self.session.error_file, error, at_utc)  # now: its time is the evidence for who was first
        self._main_is_out()
        if tells_of_a_dead_peer(error) or self._is_missed:
            print("faultrun: a peer seems to be gone; waiting to be asked to save", file=sys.stderr)  # noqa: T201
            self._await_request()
            if not self._helper.requested.is_set():  # the peer has not failed: it left with 0, or is far away
                self.say("awaits_gasp")
                self._helper.requested.wait(self.session.verdict_s)
        elif isinstance(error, KeyboardInterrupt) or child_was_told(reaped=True):
            self._helper.requested.wait(LATE_LINE_S)
        self._await_leaving()

    @property
    def _is_missed(self) -> bool:
        """Whether others wait for this process in the next group."""
        return self.regroup.is_awaited and self.regroup.is_lost(self.session.incarnation)

    def _save_for_the_lost(self) -> None:
        """The script has come to its end. Where a peer that is lost has to come to it too, all save first."""
        if self._is_missed and not self.regroup.may_end():
            self._await_request("its script has ended, and a rank that is lost has to end, too")
            self._await_leaving()

    def _await_request(self, why: str = _OUTSIDE) -> None:
        """Wait to be asked to save. Who waits for this process in the next group is told to wait no more."""
        until_s = time.monotonic() + self.session.verdict_s
        while time.monotonic() < until_s and not self._helper.requested.wait(_LOOK_S):
            if self._is_missed:
                self.regroup.is_awaited, until_s = False, time.monotonic() + self.session.verdict_s
                self.say("cannot_rejoin", incarnation=self.session.incarnation, why=why)

    def _at_exit(self) -> None:
        """The last thing before the interpreter ends: a request that is being served comes first."""
        if os.getpid() != self._pid:
            return
        self._main_is_out()
        if self._error is None:
            self._save_for_the_lost()
        provider = self._helper.provider
        if self._error is None and provider is not None and provider.unfinished():
            self._helper.requested.wait(_LINGER_UNFINISHED_S)  # sys.exit in an except clause of the script
        if self._error is None and (self._slot.agreed_stop() or child_was_told()):
            self._helper.requested.wait(_LINGER_S)  # stopped by a peer's proposal; the request comes
        self._await_leaving()
        if self._exit_watch is not None and self._exit_watch.is_zero():
            self._programs.ended()
            if self._leads:
                said = self.works_at(WorkPhase.UNKNOWN) is WorkPhase.DONE
                if said or not self._was_told():
                    self._say_done(None if said else _LEAVES_WITHIN_S)

    def _was_told(self) -> bool:
        """Whether the script took a signal to stop: that it ends with 0 does not say then that it is done."""
        folder = Path(self.session.progress.rpartition(":")[0]).parent
        return (folder / SIGNALS_FILE.format(rank=self.session.rank)).exists()

    def _leaving(self) -> None:
        """The main program has ended, well or not: whatever follows is no step that takes too long."""
        if os.getpid() == self._pid:
            self.works_at(WorkPhase.UNKNOWN)

    def _say_done(self, ends_within_s: float | None) -> None:
        """From now on a signal is no failure. None: it has its time already."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()  # what is still buffered would be lost with a crash
        self._helper.says_all(_SAYS_S)  # that it has rejoined, for one: a script may end a step later
        self.works_at(WorkPhase.DONE if self._leads else WorkPhase.UNKNOWN)
        if ends_within_s is not None:
            # The kernel's own action: no interpreter is needed to end one that hangs while it is taken down.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, ends_within_s)

    def _main_is_out(self) -> None:
        self._helper.main_is_out.set()
        if self._helper.provider is not None:
            self._helper.provider.lock.stop()

    def _await_leaving(self) -> None:
        """While a request is served this process ends in the helper thread, or by SIGKILL at the deadline."""
        helper = self._helper
        if helper.requested.is_set() and (helper.provider is not None or helper.cooperative):
            while helper.is_alive():
                time.sleep(_LOOK_S)

    def _in_child(self) -> None:
        """A forked data loader is no worker: its signals and its end are its own."""
        self._helper.pipe.release_in_child()
        _forget()


_worker: Worker | None = None
_asked_before = False


def worker() -> Worker | None:
    """This process's worker; None outside faultrun and in child processes."""
    global _worker, _asked_before  # noqa: PLW0603 - a process is one worker
    if not _asked_before:
        _asked_before = True
        session = read_session(os.environ)
        if session is not None and multiprocessing.parent_process() is None:
            _worker = Worker(session)
    return _worker


def lone_worker() -> Worker | None:
    """The worker, made also where only another launcher, or none, started this process.

    For classes that promise to answer SIGTERM wherever they run. None in child processes.
    """
    global _worker  # noqa: PLW0603 - a process is one worker
    if worker() is None and multiprocessing.parent_process() is None:
        _worker = Worker(read_identity(os.environ))
    return _worker


def _forget() -> None:
    global _worker  # noqa: PLW0603 - a process is one worker
    _worker = None


def _faults() -> "Injector | None":
    """Faults on demand (``faultrun.testing``), where they were asked for."""
    if not os.environ.get("FAULTRUN_CHAOS"):
        return None
    from faultrun.testing import from_environment

    return from_environment()


def _as_the_end_begins(call: Callable[[], None]) -> None:
    """Have it called before threads are waited for, where Python can; ``atexit`` comes after that."""
    if (register := getattr(threading, "_register_atexit", None)) is not None:
        with contextlib.suppress(RuntimeError):  # the end has begun
            register(call)


def _speak_into(path: str, fd: int) -> None:
    """A newcomer that has run ahead speaks where its rank does from now on; what it has said stays there."""
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        os.dup2(opened, fd)
        os.close(opened)
