"""The callback for Lightning's ``Trainer``: tells a guard where its loops are, and brings them back there.

Lightning calls the hooks in the main thread; nothing here talks to another rank.
"""

import signal
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faultrun.errors import FaultrunError
from faultrun.model.observed.progress import WorkPhase
from faultrun.sdk.lightning.checkpoint import STATE_KEY, overrides
from faultrun.sdk.lightning.guard import LightningGuard, is_own, place_in
from faultrun.sdk.lightning.loader import is_stateful, place_loaders
from faultrun.sdk.lightning.progress import FitPlace, Next, place_of, resumable
from faultrun.sdk.lightning.strategies import check_optimizers, check_strategy
from faultrun.sdk.torch.loader.loader_position import check_positions, set_epoch
from faultrun.sdk.torch.provider import TorchProvider
from faultrun.sdk.torch.rest_of_state import put_rest
from faultrun.sdk.torch.state.rng import Rng, current_rng, restore_rng
from faultrun.sdk.worker.save_files import Folder, SaveWriter, folder_of
from faultrun.sdk.worker.state_provider import preflight
from faultrun.sdk.worker.training_stages import saving_in, told
from faultrun.sdk.worker.worker import worker

_LIGHTNINGS = ("lightning.pytorch.", "pytorch_lightning.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """What a fit goes on from: where, and with which random numbers; None if unknown."""

    place: FitPlace
    rng: Rng | None = None
    epoch_rng: Rng | None = None


class LightningGasp:
    """Half of the callback: ``sdk.lightning`` puts it before ``Callback`` of the Lightning in use."""

    state_key = STATE_KEY

    def __init__(self, directory: str | Path | Folder | None = None) -> None:
        super().__init__()
        self._worker = worker()
        self._directory = directory
        self._guard: LightningGuard | None = None
        self._resumed: Resumed | None = None
        self._state: dict[str, Any] = {}
        self._trains = False

    @property
    def ckpt_path(self) -> str | None:
        """For ``trainer.fit(ckpt_path=...)``: the checkpoint that faultrun chose for this rank, if any.

        None, with a line in the log, once an earlier fit of this script has gone on from it, and where it
        is of another program below this rank.
        """
        if self._worker is None:
            return None
        folder = "" if self._directory is None else folder_of(self._directory).path
        if (point := self._worker.point_for(folder)) is None:
            return None
        if self._worker.stages.is_used_up():
            told(f"{point.path} is of an earlier fit of this script; this one begins at its beginning")
            return None
        return point.path

    def setup(self, trainer: Any, _module: Any, stage: str) -> None:
        """Be asked where the data are opened. FaultrunError for what could never be saved."""
        self._guard, self._resumed, self._trains = None, None, False
        if self._worker is None or stage != "fit":
            return
        check_strategy(trainer.strategy)
        place_loaders(trainer, self)

    def on_load_checkpoint(self, _trainer: Any, _module: Any, checkpoint: dict[str, Any]) -> None:
        """Where training goes on, from a checkpoint of ours, of Lightning with this callback, or without."""
        loops = checkpoint.get("loops", {})
        if self._worker is None or "fit_loop" not in loops:
            return
        self._state = checkpoint.get("callbacks", {}).get(STATE_KEY, {})
        if is_own(self._state):
            place: FitPlace | None = place_in(self._state)
            loops["fit_loop"] = resumable(loops["fit_loop"], place_in(self._state))
        else:
            place = place_of(loops["fit_loop"])
        self._resumed = Resumed(place=place) if place is not None else None

    def on_fit_start(self, trainer: Any, *_: Any) -> None:
        """Watch the optimizers, and take SIGTERM before Lightning does."""
        if self._worker is None:
            return
        folder = folder_of(trainer.default_root_dir if self._directory is None else self._directory)
        writer = SaveWriter(folder, self._worker.session)
        saves = [one.dirpath for one in trainer.checkpoint_callbacks if getattr(one, "dirpath", None)]
        self._worker.stages.begins(saving_in(saves, folder.directory), trainer.ckpt_path)
        check_optimizers(trainer.optimizers)
        self._guard = guard = LightningGuard(trainer, self._worker, writer)
        if self._resumed is not None and is_own(self._state):
            rng, epoch_rng = guard.rng_of(self._state)
            self._resumed = replace(self._resumed, rng=rng, epoch_rng=epoch_rng)
            saved = guard.training.parts.model.state_dict()
            guard.training.tell_whose_buffers(self._state["rank"], saved)
        self._worker.keep(TorchProvider(guard.training, guard.form, guard.unended))
        self._on_sigterm = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """All is put back: try what a save will need.

        Lightning's own handler of SIGTERM broadcasts in the middle of whatever this rank does (2.6,
        ``_SignalConnector._sigterm_notifier_fn``), which the peers may take for a gradient. A worker of
        faultrun is saved by another thread and leaves: ours alone stays.
        """
        if (guard := self._guard) is None:
            return
        if type(trainer.fit_loop._data_fetcher).__name__ == "_DataLoaderIterDataFetcher":
            raise FaultrunError(
                "sdk.lightning.DyingGasp cannot protect this training",
                because="training_step(dataloader_iter) fetches its own batches: a step has no end",
                hint="take a batch: training_step(self, batch, batch_idx)",
            )
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.siginterrupt(signal.SIGTERM, False)
        state, self._state = self._state, {}
        if "rest" in state:
            put_rest(guard.training.parts, state["rest"], {})
        writer = guard.training.writer
        preflight(writer, f"rank_{writer.session.rank}", guard.form.rehearse)
        guard.training.in_loop = self._trains = True
        if self._resumed is not None:
            if self._resumed.place.next is not Next.EPOCH:
                _begin_epoch_again(trainer, pl_module)
            warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before the epoch")
            if self._resumed.place.next is Next.VALIDATION:
                self._restore()  # it is begun again before any batch

    def opening(self, loaders: list[Any]) -> int:
        """The batches of an epoch are opened now; how many of them are done."""
        guard, resumed = self._guard, self._resumed
        if guard is None:
            return 0
        for one in loaders:
            if not is_stateful(one):
                check_positions(one)
        state = guard.training.reading.state_of(*loaders)
        state.check()
        if resumed is None or self._trains or resumed.place.next is Next.EPOCH_END:
            if self._trains:
                self._restore()
            guard.opened(guard.epoch, state)
            return 0
        for one in loaders:
            set_epoch(one, resumed.place.epoch)
        began = resumed.rng if resumed.place.next is Next.EPOCH else resumed.epoch_rng
        if began is not None:
            restore_rng(began, state)
        guard.opened(resumed.place.epoch, state)
        return 0 if any(map(is_stateful, loaders)) else resumed.place.done

    def opened(self) -> None:
        """They are open. Hooks that run until the first is fetched may draw random numbers."""
        guard, resumed = self._guard, self._resumed
        if guard is not None and resumed is not None and resumed.place.next is Next.EPOCH and resumed.rng:
            self._resumed = replace(resumed, rng=current_rng(guard.training.reading.loader_state()))

    def fetching(self) -> None:
        """The last step is over with all that follows it: here training can go on."""
        if self._guard is not None and self._trains:
            self._restore()
            self._guard.fetches()

    def _restore(self) -> None:
        """From now on the random numbers are those of the place that was resumed."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None and resumed.rng is not None and self._guard is not None:
            restore_rng(resumed.rng, self._guard.training.reading.generator)

    def on_train_batch_start(self, *_: Any) -> None:
        """A step begins."""
        if self._guard is not None:
            self._guard.begins_batch()
            self._works_at(WorkPhase.COMPUTING)

    def on_before_backward(self, *_: Any) -> None:
        """The forward pass is over; the gradients meet those of the peers."""
        if self._guard is not None and self._guard.training.writer.session.world_size > 1:
            self._guard.under_way()
            self._works_at(WorkPhase.COLLECTIVE)

    def on_before_optimizer_step(self, *_: Any) -> None:
        """The update begins."""
        if self._guard is not None:
            self._guard.training.before_update()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """The step is made; callbacks, the module and a validation may still follow."""
        if self._guard is not None and self._worker is not None:
            self._guard.ends_batch()
            if trainer.global_step:
                self._worker.step(trainer.global_step, trainer.current_epoch)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """An evaluation has a limit of its own, and can be begun again."""
        guard = self._guard
        if guard is not None and self._trains and not trainer.sanity_checking:
            guard.boundary(Next.VALIDATION)
            guard.validated = True
            if any(map(_may_swap_weights, (pl_module, *trainer.callbacks))):
                guard.training.begin()  # until the next boundary nothing may be saved
        self._works_at(WorkPhase.EVALUATING)

    def on_test_start(self, *_: Any) -> None:
        """Tell faultrun that an evaluation begins."""
        self._works_at(WorkPhase.EVALUATING)

    on_predict_start = on_test_start

    def on_validation_end(self, *_: Any) -> None:
        """What follows takes its time."""
        self._works_at(WorkPhase.UNKNOWN)

    on_test_end = on_predict_end = on_validation_end

    def on_train_epoch_end(self, *_: Any) -> None:
        """What hooks do between epochs takes its time."""
        if self._guard is not None:
            self._guard.epoch_is_over = True
        self._works_at(WorkPhase.UNKNOWN)

    def on_train_end(self, *_: Any) -> None:
        """Nothing is unfinished any more."""
        if self._guard is not None:
            self._guard.boundary(self._guard.what_comes())
            self._guard.training.in_loop = self._trains = False
        self._works_at(WorkPhase.UNKNOWN)

    def on_fit_end(self, *_: Any) -> None:
        """The fit is over, even one that had nothing left to train: that has no ``on_train_end`` (2.6)."""
        if self._worker is not None:
            self._worker.stages.ends()

    def state_dict(self) -> dict[str, Any]:
        """Random numbers and place, for checkpoints that Lightning writes."""
        return self._guard.own_state() if self._guard is not None and self._trains else {}

    def on_save_checkpoint(self, *_: Any) -> None:
        """Lightning writes a checkpoint."""
        self._works_at(WorkPhase.SAVING)

    def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
        """Before Lightning takes the training apart: a request to save it may be on its way."""
        if self._guard is not None and self._worker is not None and isinstance(exception, Exception):
            self._worker.failing(exception, time.time())

    def on_after_optimizer_step(self, **_: Any) -> None:
        """Called by Fabric alone, whose loop is the script's. FaultrunError under faultrun."""
        if self._worker is not None:
            raise FaultrunError(
                "sdk.lightning.DyingGasp protects nothing in Fabric(callbacks=...)",
                because="a Fabric loop does not tell its callbacks where a step ends",
                hint='guard = sdk.lightning.protect(fabric, model, optimizer, directory="ckpt")',
            )

    def _works_at(self, phase: WorkPhase) -> None:
        if self._worker is not None:
            self._worker.works_at(phase)


def _begin_epoch_again(trainer: Any, module: Any) -> None:
    """Lightning calls no ``on_train_epoch_start`` where a fit goes on inside an epoch.

    What follows from the epoch alone is set again, and what only the hook knows is told.
    """
    for one in (module, *trainer.callbacks):
        if isinstance(one, LightningGasp) or not overrides(one, "on_train_epoch_start"):
            continue
        if callable(getattr(one, "get_accumulate_grad_batches", None)):
            one.on_train_epoch_start(trainer, module)
        elif not type(one).__module__.startswith(_LIGHTNINGS):
            told(
                f"{type(one).__name__}.on_train_epoch_start is not called again inside of epoch"
                f" {trainer.current_epoch}: what it sets is as at the start"
            )


def _may_swap_weights(one: Any) -> bool:
    """Whether it does something of its own as an evaluation begins, such as swapping in averaged weights."""
    if type(one).__module__.startswith(_LIGHTNINGS) and not hasattr(one, "_swap_models"):
        return False
    hooks = ("on_validation_start", "on_validation_epoch_start", "on_validation_model_eval")
    return not isinstance(one, LightningGasp) and any(
        hasattr(one, hook) and overrides(one, hook) for hook in hooks
    )
