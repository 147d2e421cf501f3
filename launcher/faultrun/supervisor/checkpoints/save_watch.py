"""Watches the checkpoint folders: what workers write as one save, what a script opens before it trains.

The kernel tells it (``platforms/folder_watch.py``). Loads are listened to until the first step only: data
that lies beside checkpoints is read all the time.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from faultrun.checkpoints.listing import stamp_of
from faultrun.checkpoints.reading import contents_digest
from faultrun.checkpoints.saves.growing_save import GrowingSave
from faultrun.checkpoints.saves.save_learner import SaveLearner
from faultrun.checkpoints.saves.save_names import is_of_a_save, masked
from faultrun.model.events import Event, FirstStep, IncarnationStarted, PlanAdopted
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.observed.saves import CheckpointsOpened, FirstSaveTold, SavesObserved, SavesSeen
from faultrun.model.run import Phase, Run, RunState, Step
from faultrun.platforms.folder_watch import FileSeen, FileUse, FolderWatch
from faultrun.supervisor.checkpoints.finder import CheckpointFinder
from faultrun.supervisor.checkpoints.opened_files import OpenedFiles
from faultrun.supervisor.checkpoints.saves_of_runs import SavesKnown
from faultrun.supervisor.hangs.log_watch import LogPlace, LogWatch
from faultrun.supervisor.reactor import BackgroundTasks, Reactor

_SETTLED_S, _ALL_OF_IT_S, _AGAIN_S, _MOMENT_S = 0.3, 2.0, 0.5, 0.1
_OFTEN_S, _SHARE = 10.0, 0.05
"""What is known of saves is written down no oftener, nor than this share of the time since the start."""
_MOST_EARLY, _REPEATED = 256, 3
"""What is written so often under one name is a save, whether a step was told or not."""
_NO_STEP_S = 60.0
"""Who tells of no step for so long tells of none."""
_MOST_ELSEWHERE, _MOST_TRIES = 64, 4
_TOLD_EACH = 3
"""So many saves are told one by one; later ones only where their files are others."""


class SaveWatch(SavesKnown):
    """Implements ``interfaces.EventListener``. ``run`` tells what earlier supervisors and other nodes saw.

    ``attach`` says in whose thread logs are read for the step of a save. ``seen`` and ``opened`` may be
    called from any thread. What is saved ``beside`` the folders that are looked through is told.
    """

    def __init__(
        self, reactor: Reactor, roots: Sequence[str], beside: Sequence[str], logs: LogWatch, run: Run
    ) -> None:
        self._reactor, self._logs = reactor, logs
        self._watch = FolderWatch(roots, beside=beside)
        self._roots, self._learner = roots, SaveLearner(run.seen, roots)
        if run.plan is not None:
            self._learner.elsewhere = run.plan.seen
        self._lock = threading.Lock()
        self._errands: BackgroundTasks | None = None
        self._finder: CheckpointFinder | None = None
        self._life, self._began_s, self._since_ns, self._next_s = -1, 0.0, time.time_ns(), 0.0
        self._running = self._trained = self._steps = self._sorting = self._settling = False
        self._begun = self._covered = self._sees = self._met = self._over = False
        self._found: list[FileSeen] = []
        self._early: dict[str, LogPlace] = {}
        self._early_in: dict[str, int] = {}
        self._first: dict[int, tuple[int | None, int | None]] = {}
        self._times: Counter[str] = Counter()
        self._opened = OpenedFiles()
        self._unstepped: list[tuple[GrowingSave, str, LogPlace]] = []
        self._told, self._kinds = run.seen, self._learner.kinds
        self._described, self._shape = frozenset[str](), ""
        self._elsewhere: dict[str, None] = {}
        self._tries = 0

    @property
    def whole(self) -> bool:
        """Whether nothing can have been missed since this supervisor began."""
        return self._life >= 0 and self._watch.whole

    @property
    def began(self) -> bool:
        """Whether workers of this supervisor have been started."""
        return self._life >= 0

    @property
    def early(self) -> dict[str, tuple[int | None, int | None]]:
        """The step and epoch that were told first after each file from before that; None: not told."""
        with self._lock:
            return {path: self._first.get(life, (None, None)) for path, life in self._early_in.items()}

    @property
    def opened(self) -> tuple[str, ...] | None:
        """The files of checkpoints that the script read before its first step; None: unknown."""
        return self._opened.paths if self.whole else None

    def attach(self, errands: BackgroundTasks, finder: CheckpointFinder) -> None:
        """Let ``errands`` do what may take its time; ``finder`` notes saves, and knows those of before."""
        self._errands, self._finder = errands, finder
        if self._watch.fd >= 0:
            self._reactor.watch(self._watch.fd, self._hear)

    def is_early(self, path: str) -> bool:
        """Whether ``path`` was written in this incarnation, and training may not have begun by now."""
        if path in self._early:
            return self._reactor.now() < self._began_s + _NO_STEP_S
        with self._lock:
            return path in self._learner.seen.prepared

    def seen(self) -> SavesSeen:
        """What is known of the run's saves at this moment; reads logs for it, so never in the loop."""
        self._meet_again()
        self._sort_early()
        self._take_steps()
        with self._lock:
            return self._learner.seen_anywhere

    def close(self) -> None:
        """Listen no longer; note all that workers wrote until now: their logs say which of it is a save."""
        errands, self._errands = self._errands, None
        if self._watch.fd >= 0:
            self._hear_all()
            self._reactor.forget(self._watch.fd)
        self._trained = True  # a first step that a rank printed may be in its log, and not read yet
        if errands is not None:
            errands.settle(_MOMENT_S)  # no longer: it may read a dying gasp back
            last = BackgroundTasks(self._reactor)
            last.send(lambda: self._note_steps(self._life))
            last.settle(_ALL_OF_IT_S)  # its file system may hang
        self._watch.close()

    def tell(self, event: Event, step: Step) -> None:
        """Follow the incarnation: loads count up to its first step, saves up to its end."""
        match event:
            case PlanAdopted() if step.state.plan is not None:
                self._hear_all()
                self._learner.elsewhere = step.state.plan.seen
                beside = self._finder is not None and self._finder.beside
                self._opened.begin(step.state.plan.point, shared=bool(beside))
                self._starts(step.state.plan.incarnation, kept=bool(step.state.plan.kept))
            case IncarnationStarted(incarnation=life) if life == self._life and self._could_see(step.state):
                paths = self._opened.at_start
                self._reactor.post(CheckpointsOpened(at_s=self._reactor.now(), incarnation=life, paths=paths))
            case FirstStep() | FirstStepLogged() if event.incarnation == self._life and not self._trained:
                self._hear_all()
                epoch = event.epoch if isinstance(event, FirstStepLogged) else None
                self._first[self._life] = (event.step, epoch)
                self._trains()
        if self._running and step.state.phase is not Phase.RUNNING:
            self._hear_all()  # what a rank wrote last, before it is looked for a checkpoint
            self._over = True
            self._settle()
        self._running = step.state.phase is Phase.RUNNING

    def _could_see(self, state: RunState) -> bool:
        """Whether reads of the recovery point would be told; one that a rank saved may lie elsewhere."""
        plan = state.plan
        ours = () if plan is None else plan.topology.ranks_of(state.node)
        paths = [plan.point.path_for(rank) for rank in ours] if plan is not None and plan.point else []
        return all(map(self._root_of, paths)) and self._covered and self._sees and self.whole

    def _starts(self, incarnation: int, *, kept: bool) -> None:
        first, self._life = self._life < 0, incarnation
        with self._lock:
            self._learner.begins_life(kept=kept)
        self._began_s = self._reactor.now()
        self._early, self._trained, self._covered = {}, kept, self._begun
        self._steps = self._over = False
        self._described, self._times = frozenset(), Counter()
        self._watch.tell_reads(not kept)
        if first and self._errands is not None:
            self._errands.send(self._begin)
        self._reactor.call_at(self._began_s + _NO_STEP_S, lambda: self._silent(incarnation))

    def _begin(self) -> Iterable[Event]:
        """In the errands' thread: large folders take their time, and workers may have begun meanwhile."""
        self._found = self._watch.begin(since_ns=self._since_ns)
        self._begun = True
        self._reactor.call(self._hear)  # perhaps nothing is written any more that would wake the loop
        return ()

    def _trains(self) -> None:
        self._trained = self._steps = True
        self._watch.tell_reads(False)
        with self._lock:
            point = self._opened.point
            self._learner.resumed_from(self.opened or (), "" if point is None else point.path)
        if self._early:
            self._settle()

    def _silent(self, life: int) -> Iterable[Event]:
        """Training begins and no rank tells: whatever was written may be a save."""
        if life == self._life and not self._trained:
            self._trained = True
            self._watch.tell_reads(False)
            early, self._early = self._early, {}
            for path in early:
                self._wrote(path)
        return ()

    def _hear_all(self) -> None:
        for heard in self._hear():
            self._reactor.post(heard)

    def _hear(self) -> Iterable[Event]:
        read = []
        found, self._found = self._found, []
        for seen in (*found, *self._watch.seen()):
            self._sees |= self._root_of(seen.path) != ""
            with self._lock:
                if seen.was and self._learner.moved(seen.was, seen.path):
                    continue
            if seen.use is FileUse.READ and not self._trained:
                read += [seen.path] if self._opened.read(seen.path, lives=self._running) else []
            elif seen.use is FileUse.WRITTEN and self._is_after_a_step(seen.path):
                self._wrote(seen.path)
            elif seen.use is FileUse.WRITTEN and len(self._early) < _MOST_EARLY and is_of_a_save(seen.path):
                self._early[seen.path] = self._early.pop(seen.was, self._logs.place())
                self._times[seen.path] += self._root_of(seen.path) != ""
                if self._times[seen.path] == _REPEATED:
                    self._silent(self._life)
                self._settle_soon()
        if read and self._watch.whole:
            yield CheckpointsOpened(at_s=self._reactor.now(), incarnation=self._life, paths=tuple(read))

    def _is_after_a_step(self, path: str) -> bool:
        """Whether it is a save already; of a run's first one the log of its writer is asked later."""
        with self._lock:
            first = self._steps and not self._learner.kinds
            return (self._trained and not first) or self._learner.knows(path, resumed=bool(self.opened))

    def _wrote(self, path: str) -> None:
        root = self._root_of(path)
        with self._lock:
            self._early_in.pop(path, None)
            if not root or (save := self._learner.wrote(path, root=root)) is None:
                self._wrote_elsewhere(path)
                return
            self._unstepped.append((save, path, self._logs.place()))
        if self._errands is not None:
            self._errands.offer(self._take_steps)  # before it is written over
        self._settle_soon()

    def _settle_soon(self) -> None:
        if not self._settling:
            self._settling = True
            self._reactor.call_at(self._reactor.now() + _SETTLED_S, self._settle)

    def _wrote_elsewhere(self, path: str) -> None:
        """A file that no name shows to be a save may be one if it is written again, in the roots."""
        self._times[kind := masked(path)] += self._root_of(path) != "" and len(self._times) < _MOST_EARLY
        may_be = is_of_a_save(path) or self._times[kind] == _REPEATED - 1
        if may_be and len(self._elsewhere) < _MOST_ELSEWHERE and not self._described:
            if not self._elsewhere:
                self._tell_soon()
            self._elsewhere[path] = None

    def _settle(self) -> Iterable[Event]:
        self._settling, life = False, self._life
        self._offer(lambda: self._note_steps(life))
        return self._tell_soon()

    def _offer(self, task: Callable[[], Iterable[Event]]) -> Iterable[Event]:
        """To the errands' thread, once that has nothing else to do."""
        if self._errands is not None and self._errands.idle():
            self._errands.offer(task)
        elif self._errands is not None:
            self._reactor.call_at(self._reactor.now() + _AGAIN_S, lambda: self._offer(task))
        return ()

    def _meet_again(self) -> None:
        """What workers wrote that an earlier supervisor left behind, until another one began to watch."""
        with self._lock:
            met, self._met = self._met, True
        if met or self._life >= 0 or self._finder is None:
            return
        known, elsewhere = self._finder.last_seen(self._learner.seen), self._learner.elsewhere
        unmet = {path for save in known.saves for path in (*save.paths, *save.ranks)}
        written = ((stamp.mtime_ns, path) for path in unmet if (stamp := stamp_of(path)) is not None)
        digests = {path: contents_digest(path) for _, path in sorted(written)}
        with self._lock:
            self._learner = SaveLearner(known, self._roots)
            self._learner.elsewhere = elsewhere
            self._learner.met_again(digests)

    def _sort_early(self) -> None:
        """What was written before a first step was read: a script may train faster than its log is read.

        Of a life that is over none may ever be.
        """
        with self._lock:
            early = dict(self._early) if (self._trained or self._over) and not self._sorting else {}
            self._sorting |= bool(early)
        if not early:
            return
        steps = [(path, self._root_of(path), *self._look(path, place)) for path, place in early.items()]
        begun = {path for path, _, step, _ in steps if step is not None or self._logs.had_begun(early[path])}
        with self._lock:
            for path, root, step, digest in steps:
                if root and path in begun and (save := self._learner.wrote(path, root=root)) is not None:
                    self._learner.saved_at(save, path, step, digest)
                elif root and path not in begun:
                    self._learner.before_training((path,))
                    self._early_in[path] = self._life
                elif path in begun:
                    self._elsewhere[path] = None
            self._early = {path: at for path, at in self._early.items() if early.get(path) is not at}
            self._sorting = False
        self._reactor.call(self._settle)  # another thread may have looked meanwhile, and not known of these

    def _look(self, path: str, place: LogPlace) -> tuple[int | None, str]:
        """The step that training had come to when ``path`` was written, and a digest of what is in it."""
        return self._logs.step_at(place), contents_digest(path)

    def _take_steps(self) -> Iterable[Event]:
        """What was in a file that is written again by now is gone: its digest is of what came after."""
        with self._lock:
            written, self._unstepped = self._unstepped, []
        steps = [(save, path, *self._look(save.path(path), place)) for save, path, place in written]
        with self._lock:
            later = [one[:2] for one in (*steps, *self._unstepped)]
            for at, (save, path, step, digest) in enumerate(steps, 1):
                again = [one is save for one, other in later[at:] if other == path]
                if not any(again):
                    self._learner.saved_at(save, path, step, "" if again else digest)
        return ()

    def _note_steps(self, life: int) -> Iterable[Event]:
        """In the errands' thread."""
        self._sort_early()
        self._take_steps()
        with self._lock:
            seen, kinds, early = self._learner.seen, self._learner.kinds, tuple(self._early)
        if self._finder is not None:
            self._finder.note(replace(seen, prepared=(*seen.prepared, *early)))
        now_s = self._reactor.now()
        new = len(seen.saves) <= _TOLD_EACH or kinds != self._kinds or not self._running
        if seen != self._told and (new or now_s >= self._next_s):
            self._told, self._kinds = seen, kinds
            self._next_s = now_s + max(_OFTEN_S, _SHARE * (now_s - self._began_s))
            yield SavesObserved(at_s=now_s, incarnation=life, seen=seen)

    def _tell_soon(self) -> Iterable[Event]:
        life = self._life
        self._reactor.call_at(self._reactor.now() + _ALL_OF_IT_S, lambda: self._tell_first(life))
        return ()

    def _tell_first(self, life: int) -> Iterable[Event]:
        with self._lock:
            kinds = self._learner.kinds
            elsewhere, self._elsewhere = () if kinds else tuple(self._elsewhere), {}
        finder, new = self._finder, elsewhere or kinds - self._described
        if finder is None or life != self._life or not new:
            return ()
        self._described |= kinds
        self._tries += bool(elsewhere)
        if kinds or self._tries >= _MOST_TRIES:
            self._watch.leave_beside()
        return self._offer(lambda: self._if_told(finder.first_save(life, elsewhere)))

    def _if_told(self, told: FirstSaveTold | None) -> Iterable[Event]:
        """In the errands' thread. What is known of saves of this shape was said before."""
        if told is not None:
            shape = masked(" ".join((told.path, *told.beside, *told.instead) if told.path else (told.words,)))
            before, self._shape = shape == self._shape, shape
            yield replace(told, before=before)

    def _root_of(self, path: str) -> str:
        return next((one for one in self._watch.roots if path.startswith(f"{one}/")), "")
