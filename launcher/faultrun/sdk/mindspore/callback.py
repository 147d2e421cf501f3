"""The callback that keeps a state to save: ``DyingGasp``, with the arguments of ``ModelCheckpoint``."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mindspore import get_context
from mindspore.train import Callback, CheckpointConfig

from faultrun.model.progress import WorkPhase
from faultrun.sdk.files import Names, Saved, Shelf, Stamp, numbered
from faultrun.sdk.gate import Gate
from faultrun.sdk.mindspore.files import appended, breakpoint_names, write_checkpoint
from faultrun.sdk.mindspore.interval import Interval
from faultrun.sdk.mindspore.keeper import MindSporeKeeper, Training
from faultrun.sdk.mindspore.memory import HostMemory, HostState, Place
from faultrun.sdk.mindspore.optimizer import begun_counter, mark_updates, updated_in_marks
from faultrun.sdk.preflight import folder_of, preflight
from faultrun.sdk.worker import Worker, worker

_NOWHERE = Place(step=0, epoch=0, batch=0, step_num=0)


class DyingGasp(Callback):  # type: ignore[misc]  # MindSpore has no types
    """Saves ``<prefix>-<epoch>_<step>_breakpoint.ckpt`` when a peer dies or faultrun is told to stop.

    ``prefix``, ``directory`` and ``config`` mean what they mean for
    ``ModelCheckpoint``, which may be used in the same run; give every rank a
    directory of its own, as there. On the CPU the optimizer is wrapped in
    ``OptTFTWrapper``, unless it is, and nothing is copied. Where that cannot
    be done, or ``every`` is given, the state is copied to the host: every so many
    steps, by default so seldom that copying takes less than one percent of
    the time. Does nothing when faultrun did not
    start the process. FaultrunError where nothing could ever be saved.
    """

    def __init__(
        self,
        prefix: str = "CKP",
        directory: str | Path | None = None,
        config: Any = None,
        every: int | None = None,
    ) -> None:
        super().__init__()
        self._worker = self._find_worker()
        self._training = Training(gate=Gate())
        self._interval = Interval(None)
        if self._worker is None:
            return
        if not isinstance(prefix, str) or "/" in prefix:
            raise ValueError(f"prefix must be a string without '/', not {prefix!r}")
        config = CheckpointConfig() if config is None else config
        self._prefix = prefix
        self._shelf = Shelf(folder_of(Path.cwd() if directory is None else directory), self._worker.session)
        preflight(self._shelf)
        self._network = config.saved_network
        self._base = dict(config.append_dict or {})  # now: ModelCheckpoint counts up in the very same dict
        self._marks = every is None
        self._counter: Callable[[], int] | None = None
        self._counted_first = 0
        self._interval = Interval(every, self._worker.agree_on_interval)
        self._offset: int | None = None
        self._batch_num = 0
        self._ended_s = 0.0
        self._told_every = 1

    @property
    def cost(self) -> tuple[int, float, float]:
        """Steps between copies, seconds for a copy (0: none made), seconds for a step; as learnt so far."""
        return self._interval.every, self._interval.copy_s, self._interval.step_s

    def on_train_begin(self, run_context: Any) -> None:
        """Take the parameters' places in memory, and be ready for requests."""
        if self._worker is None:
            return
        params = run_context.original_args()
        training = self._training
        network = params.train_network
        if self._marks and get_context("device_target") == "CPU":
            mark_updates(network)
        saved = self._network if self._network is not None else network
        training.memory = HostMemory(saved, updated_in_marks(network))
        self._counter = begun_counter(network) if training.memory.views is not None else None
        self._counted_first = self._counter() if self._counter is not None else 0
        self._batch_num = int(params.batch_num)
        training.running = True
        self._worker.keep(MindSporeKeeper(training, self._shelf, self._write))
        preflight(self._shelf, save=self._save_no_parameters)
        self._ended_s = time.perf_counter()

    def on_train_step_begin(self, run_context: Any) -> None:
        """From here on the graph may update the parameters at any time."""
        if self._worker is None:
            return
        if self._offset is None:
            self._offset = self._steps_before(run_context.original_args())
        self._training.gate.begin()
        self._worker.works_at(WorkPhase.COLLECTIVE)

    def on_train_step_end(self, run_context: Any) -> None:
        """The step is complete: its parameters are what a request is answered with."""
        if self._worker is None:
            return
        params = run_context.original_args()
        place = self._place(params)
        due = self._interval.stepped(place.step, time.perf_counter() - self._ended_s)
        self._training.gate.boundary(lambda: self._capture(place, due))
        self._worker.step(place.step, place.epoch)
        self._ended_s = time.perf_counter()

    def on_train_epoch_end(self, _run_context: Any) -> None:
        """What other callbacks do between epochs takes its time."""
        self._works_at(WorkPhase.UNKNOWN)

    def on_eval_begin(self, _run_context: Any) -> None:
        """An evaluation is no step, and has a limit of its own."""
        self._works_at(WorkPhase.EVALUATING)

    def on_eval_step_end(self, _run_context: Any) -> None:
        """It moves."""
        self._works_at(WorkPhase.EVALUATING)

    def on_eval_end(self, _run_context: Any) -> None:
        """Until the next step begins nobody can say what the script does."""
        self._works_at(WorkPhase.UNKNOWN)

    def on_train_end(self, _run_context: Any) -> None:
        """Nothing is unfinished any more."""
        self._training.running = False
        self._works_at(WorkPhase.UNKNOWN)

    def _works_at(self, phase: WorkPhase) -> None:
        if self._worker is not None:
            self._worker.works_at(phase)

    def _find_worker(self) -> Worker | None:
        return worker()

    def _capture(self, place: Place, due: bool) -> None:
        training = self._training
        if training.memory is None:
            return
        if self._counter is not None and self._counter() != self._counted_first:
            training.begun = self._counter  # a graph compiled before it was marked would never count
        if training.begun is not None:
            with training.memory.lock:
                training.memory.copy_early()
                training.mark = place, training.begun()
        if training.place is None:
            training.live = training.memory.views_are_live()
        training.place = place
        training.step_s = self._interval.step_s
        needless = training.live and (training.begun is not None or training.gate.is_wanted)
        if (due or training.gate.is_wanted) and not needless:
            began_s = time.perf_counter()
            training.memory.copy(place)
            self._interval.copied(time.perf_counter() - began_s)
            self._tell_interval()

    def _tell_interval(self) -> None:
        """Once it is clear that a lost peer may cost several steps: say so, and what helps."""
        every = self._interval.every
        if every > 2 * self._told_every:
            self._told_every = every
            print(  # noqa: T201 - the worker's log is where the user of this callback looks
                f"faultrun: copying the state takes {self._interval.copy_s * 1e3:.2f} ms of steps of"
                f" {self._interval.step_s * 1e3:.2f} ms: it is done every {every} steps, and a lost peer"
                " costs as many; DyingGasp(every=1) or OptTFTWrapper(optimizer) change that",
                file=sys.stderr,
            )

    def _place(self, params: Any) -> Place:
        step_num = int(params.cur_step_num)
        step = (self._offset or 0) + step_num
        return Place(
            step=step,
            epoch=int(params.cur_epoch_num),
            batch=(step - 1) % int(params.batch_num) + 1,
            step_num=step_num,
        )

    def _steps_before(self, params: Any) -> int:
        """Global steps before this script's counting began: MindSpore counts a resumed run from 1 again.

        The optimizer's ``global_step`` came with the checkpoint. A script
        that sets ``cur_step_num`` in ``on_train_begin`` counts globally itself.
        """
        if int(params.cur_step_num) > 1:
            return 0
        counter = getattr(params.optimizer, "global_step", None)
        if counter is None:
            counter = getattr(getattr(params.network, "optimizer", None), "global_step", None)
        if counter is not None:
            return int(counter.asnumpy().reshape(-1)[0])
        point = self._worker.session.point if self._worker is not None else None
        return (point.step or 0) if point is not None else 0

    def _write(self, shelf: Shelf, state: HostState, stamp: Stamp) -> Saved:
        """Runs in the helper thread."""
        memory = self._training.memory
        dtypes = memory.dtypes if memory is not None else {}
        names, content = self._names(state), self._content(state)
        return shelf.save_by_path(names, stamp, lambda path: write_checkpoint(path, state, dtypes, content))

    def _save_no_parameters(self, directory: Path) -> None:
        state = HostState(place=_NOWHERE, arrays={})
        content = self._content(state)
        self._shelf.save_by_path(
            numbered(directory / "state.ckpt"),
            Stamp(step=0),
            lambda path: write_checkpoint(path, state, {}, content),
        )

    def _names(self, state: HostState) -> Names:
        return breakpoint_names(self._shelf.folder.path, self._prefix, state)

    def _content(self, state: HostState) -> dict[str, Any]:
        return appended(state, self._base)
