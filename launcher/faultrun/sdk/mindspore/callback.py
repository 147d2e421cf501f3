"""The callback that keeps a state to save: ``DyingGasp``, with the arguments of ``ModelCheckpoint``."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mindspore import get_context
from mindspore.train import Callback, CheckpointConfig

from faultrun.model.observed.progress import WorkPhase
from faultrun.sdk.mindspore.parameters import (
    HostMemory,
    HostState,
    begun_counter,
    mark_updates,
    updated_in_marks,
)
from faultrun.sdk.mindspore.provider import MindSporeProvider, appended, breakpoint_names, write_checkpoint
from faultrun.sdk.snapshots.copy_interval import CopyInterval
from faultrun.sdk.worker.save_files import Names, Position, Saved, SaveWriter, folder_of, numbered
from faultrun.sdk.worker.state_provider import preflight
from faultrun.sdk.worker.training_stages import told
from faultrun.sdk.worker.worker import worker


class DyingGasp(Callback):  # type: ignore[misc]  # MindSpore has no types
    """Saves ``<prefix>-<epoch>_<step>_breakpoint.ckpt`` when a peer dies or faultrun is told to stop.

    ``prefix``, ``directory`` and ``config`` mean what they mean for ``ModelCheckpoint``, which may be used in
    the same run; give every rank a directory of its own, as there. On the CPU the optimizer is wrapped in
    ``OptTFTWrapper``, unless it is, and nothing is copied. Where that cannot be done, or ``every`` is given,
    the state is copied to the host: every so many steps, by default so seldom that copying takes less than
    one percent of the time. Does nothing when faultrun did not start the process. FaultrunError where nothing
    could ever be saved.
    """

    _find_worker = staticmethod(worker)

    def __init__(
        self,
        prefix: str = "CKP",
        directory: str | Path | None = None,
        config: Any = None,
        every: int | None = None,
    ) -> None:
        super().__init__()
        self._worker = self._find_worker()
        self._interval = CopyInterval(None)
        if self._worker is None:
            return
        if not isinstance(prefix, str) or "/" in prefix:
            raise ValueError(f"prefix must be a string without '/', not {prefix!r}")
        config = CheckpointConfig() if config is None else config
        self._prefix = prefix
        writer = SaveWriter(folder_of(Path.cwd() if directory is None else directory), self._worker.session)
        preflight(writer)
        self._worker.point_for(writer.folder.path)
        self._provider = MindSporeProvider(writer, self._write)
        self._network = config.saved_network
        self._base = dict(config.append_dict or {})  # now: ModelCheckpoint counts up in the very same dict
        self._marks = every is None
        self._counter: Callable[[], int] | None = None
        self._counted_first = 0
        self._interval = CopyInterval(every, self._worker.agree_on_interval)
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
        provider, network = self._provider, params.train_network
        if self._marks and get_context("device_target") == "CPU":
            mark_updates(network)
        saved = self._network if self._network is not None else network
        provider.memory = memory = HostMemory(saved, updated_in_marks(network))
        self._counter = begun_counter(network) if memory.views is not None else None
        self._counted_first = self._counter() if self._counter is not None else 0
        self._batch_num = int(params.batch_num)
        provider.running = True
        self._worker.keep(provider)
        preflight(provider.writer, save=self._save_no_parameters)
        self._ended_s = time.perf_counter()

    def on_train_step_begin(self, run_context: Any) -> None:
        """From here on the graph may update the parameters at any time."""
        if self._worker is None:
            return
        if self._offset is None:
            self._offset = self._steps_before(run_context.original_args())
        self._provider.lock.begin()
        self._worker.works_at(WorkPhase.COLLECTIVE)

    def on_train_step_end(self, run_context: Any) -> None:
        """The step is complete: its parameters are what a request is answered with."""
        if self._worker is None or (memory := self._provider.memory) is None:
            return
        params = run_context.original_args()
        step = (self._offset or 0) + int(params.cur_step_num)
        position = Position(step, int(params.cur_epoch_num), (step - 1) % int(params.batch_num) + 1)
        lock = self._provider.lock
        due = self._interval.stepped(step, time.perf_counter() - self._ended_s) or lock.is_wanted
        if due or memory.views is not None:
            memory.settle()  # with no lock held: a save must not wait for what waits for a dead peer
        lock.boundary(lambda: self._capture(memory, position, due=due))
        self._worker.step(step, position.epoch)
        self._ended_s = time.perf_counter()

    def on_train_epoch_end(self, _run_context: Any) -> None:
        """What other callbacks do between epochs takes its time; it is unknown what the script does."""
        self._works_at(WorkPhase.UNKNOWN)

    def on_eval_begin(self, _run_context: Any) -> None:
        """An evaluation is no step, and has a limit of its own."""
        self._works_at(WorkPhase.EVALUATING)

    on_eval_step_end = on_eval_begin
    on_eval_end = on_train_epoch_end

    def on_train_end(self, _run_context: Any) -> None:
        """Nothing is unfinished any more."""
        if self._worker is not None:
            self._provider.running = False
        self._works_at(WorkPhase.UNKNOWN)

    def _works_at(self, phase: WorkPhase) -> None:
        if self._worker is not None:
            self._worker.works_at(phase)

    def _capture(self, memory: HostMemory, position: Position, *, due: bool) -> None:
        provider = self._provider
        if self._counter is not None and self._counter() != self._counted_first:
            provider.begun = self._counter  # a graph compiled before it was marked would never count
        if provider.begun is not None:
            with memory.lock:
                memory.copy_early()
                provider.mark = position, provider.begun()
        if provider.position is None:
            provider.live = memory.views_are_live()
        provider.position = position
        provider.step_s = self._interval.step_s
        needless = provider.live and (provider.begun is not None or provider.lock.is_wanted)
        if due and not needless:
            began_s = time.perf_counter()
            memory.copy(position)
            self._interval.copied(time.perf_counter() - began_s)
            self._tell_interval()

    def _tell_interval(self) -> None:
        """Once it is clear that a lost peer may cost several steps: say so, and what helps."""
        if (every := self._interval.every) > 2 * self._told_every:
            self._told_every = every
            told(
                f"copying the state takes {self._interval.copy_s * 1e3:.2f} ms of steps of"
                f" {self._interval.step_s * 1e3:.2f} ms: it is done every {every} steps, and a lost peer"
                " costs as many; DyingGasp(every=1) or OptTFTWrapper(optimizer) change that"
            )

    def _steps_before(self, params: Any) -> int:
        """Global steps before this script's counting began: MindSpore counts a resumed run from 1 again.

        The optimizer's ``global_step`` came with the checkpoint. A script
        that sets ``cur_step_num`` in ``on_train_begin`` counts globally itself.
        """
        if int(params.cur_step_num) > 1:
            return 0
        for optimizer in (params.optimizer, getattr(params.network, "optimizer", None)):
            if (counter := getattr(optimizer, "global_step", None)) is not None:
                return int(counter.asnumpy().reshape(-1)[0])
        point = self._provider.writer.session.point
        return (point.step or 0) if point is not None else 0

    def _save_no_parameters(self, directory: Path) -> None:
        self._write(HostState(Position(0, 0, 0), {}), numbered(directory / "state.ckpt"))

    def _write(self, state: HostState, names: Names | None = None) -> Saved:
        """Runs in the helper thread too."""
        memory, content = self._provider.memory, self._content(state)
        names = self._names(state.position) if names is None else names
        dtypes = memory.dtypes if memory is not None else {}
        return self._provider.writer.save_by_path(
            names, state.position, lambda path: write_checkpoint(path, state, dtypes, content)
        )

    def _names(self, position: Position) -> Names:
        return breakpoint_names(self._provider.writer.folder.path, self._prefix, position)

    def _content(self, state: HostState) -> dict[str, Any]:
        return appended(state, self._base, state.position.step - (self._offset or 0))
