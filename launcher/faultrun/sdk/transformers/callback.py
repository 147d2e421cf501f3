"""``DyingGasp`` for Trainer: tells faultrun what Trainer does, and keeps its state ready to be saved.

Events of Trainer in their order (``trainer.py`` of transformers 5.23): ``on_step_begin`` after the batches of
an update are fetched, ``on_substep_end`` after each but the last of them, ``on_step_end`` once parameters,
schedule and counters belong together; then come logging, evaluation and saving, in which random numbers, a
plateau schedule and the list of logs may change; ``on_epoch_begin`` is the last word before the next order is
drawn.
"""

import inspect
import os
import re
from collections.abc import Container
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from transformers import Trainer, TrainerCallback

from faultrun.errors import CannotNow, FaultrunError
from faultrun.model.observed.progress import WorkPhase
from faultrun.sdk.torch.group.same_parameters import SameParameters
from faultrun.sdk.torch.provider import keep
from faultrun.sdk.torch.snapshots.last_boundary import LastBoundary
from faultrun.sdk.torch.state.boundary import Objects, device_of
from faultrun.sdk.torch.state.own_attributes import own_states
from faultrun.sdk.torch.state.rng import restore_rng
from faultrun.sdk.torch.state.state_dict import Parts, is_compiled, unwrapped, unwrapped_optimizer
from faultrun.sdk.torch.training import Training
from faultrun.sdk.transformers.folder import TrainerProgress, callbacks_had_stopped, finished_in, put_back
from faultrun.sdk.transformers.hub_names import read_by_class
from faultrun.sdk.transformers.provider import GaspFolder
from faultrun.sdk.transformers.trainer_changes import (
    Last,
    add_to_saves,
    as_it_was,
    put_jit_aside,
    refuse_sharded,
    train_no_more,
)
from faultrun.sdk.worker.save_files import Folder, Position, SaveWriter
from faultrun.sdk.worker.training_stages import TrainingFolders, saving_in, told
from faultrun.sdk.worker.worker import worker

_FOLDER = "_gasp"
"""Below ``output_dir``; Trainer's own rotation and search do not look there, nor is it pushed to a hub."""

_SMALL_BYTES = 1 << 30
"""Not more is copied where it is not known yet whether an evaluation needs it."""

_OF_RANK = re.compile(r"rank_(\d+)")
"""The folder of a rank's gasps."""


class TrainerGasp(TrainerCallback):  # type: ignore[misc]  # transformers has no types for us
    """Saves ``<directory>/rank_<rank>/checkpoint-<step>``, as Trainer does, when a peer dies or at a stop.

    ``directory`` is by default ``<output_dir>/_gasp``; each rank keeps its ``keep`` newest. From each of
    these folders every rank goes on in the middle of an epoch as if nothing had been, with its own random
    numbers, those of a killed rank too. One process, DataParallel and DistributedDataParallel, adapters of
    PEFT; as training begins FaultrunError for FSDP, DeepSpeed and other sharded states, and where nothing
    could ever be saved. Trainer's ``enable_jit_checkpoint`` is not needed beside it, and put aside. Without
    faultrun it does nothing.

    An evaluation or a checkpoint of Trainer's that the fault cut off is not made up for at the restart.
    """

    def __init__(self, directory: str | Path | None = None, keep: int = 2) -> None:
        self._directory, self._keep = directory, keep
        self._worker = worker()
        self._training: Training | None = None
        self._hooks: list[Any] = []
        self._alike: SameParameters | None = None
        self._last: LastBoundary | None = None
        self._swaps: bool | None = None
        """Whether parameters are others while an evaluation runs, as averaged ones; None before the first."""
        self._trainer: Any = None
        self._output_dir = ""
        self._epoch = self._batches = 0
        self._evaluates = False

    @property
    def checkpoint(self) -> str | None:
        """What to give to ``trainer.train(resume_from_checkpoint=...)``; None to begin at the beginning.

        The point that faultrun chose, where it is this Trainer's. Where it is another one's, this
        Trainer's last checkpoint if it had trained to its end, and ends at once. FaultrunError for the
        first Trainer of a script that has neither. Ask once the Trainer is made: it says where it saves.
        """
        if self._worker is None or (point := self._worker.session.point) is None:
            return None
        ours = self._worker.point_for(self._gasps() if self._output_dir else "") is not None
        if not self._output_dir or self._place().holds(point.path):
            return point.path if ours else None
        finished = finished_in(Path(self._output_dir))
        if ours and finished is None and not self._worker.stages.any_ended:
            raise CannotNow(
                f"{point.path} is not a checkpoint of this Trainer, which would begin at the beginning",
                because=f"its output_dir is {self._output_dir}, where no finished training lies either",
                hint="run each Trainer by a faultrun command, with --checkpoint_dir=<its output_dir>;"
                " or resume_from_checkpoint=sdk.resume_point().path where another folder's is meant",
            )
        told(f"{point.path} is of another Trainer; {self._output_dir} goes on from {finished or 'nothing'}")
        return str(finished) if finished is not None else None

    def on_init_end(self, args: Any, _state: Any, _control: Any, **_others: Any) -> None:
        """Note the ``output_dir`` of the Trainer whose callback this is."""
        self._output_dir = args.output_dir

    def on_train_begin(self, args: Any, state: Any, _control: Any, **_others: Any) -> None:
        """Find what is trained, and be ready for requests."""
        if self._worker is None:
            return
        trainer = self._trainer = self._caller().f_locals["self"]
        refuse_sharded(trainer)
        put_jit_aside(trainer)
        as_it_was(trainer)
        resumed, point = _resumed_from(self._caller()), self._worker.session.point
        goes_on, callbacks = point is not None and resumed == point.path, trainer.callback_handler.callbacks
        stopped = goes_on and callbacks_had_stopped(callbacks, state.stateful_callbacks)
        if stopped or 0 < state.max_steps <= state.global_step:
            train_no_more(trainer)
        for hook in self._hooks:
            hook.remove()  # of another training in this process, or of the same with larger batches
        self._output_dir = args.output_dir
        self._worker.point_for(self._gasps())
        self._worker.stages.begins(self._place(), resumed)
        writer = SaveWriter(Folder(directory=self._gasps(), keep=self._keep), self._worker.session)
        self._training = training = Training(lambda: _parts(trainer), self._worker, writer)
        written: Container[str] = ()
        if resumed is not None:
            if goes_on:
                read_by_class(Path(resumed), training.parts.model)
            written = put_back(Path(resumed), training.parts)
        self._hooks = training.watch(training.before_update, training.after_forward)
        self._hooks += [one.register_forward_pre_hook(self._before_forward) for one in training.parts.watched]
        self._alike = SameParameters(training.parts, self._worker.session, ())
        self._last = LastBoundary(training, self._worker)
        form = GaspFolder(training, trainer, written)
        keep(training, self._worker, form)
        add_to_saves(trainer, lambda folder: form.write_rest(folder, training.state_now()))
        Last.follows(trainer.callback_handler, partial(self._ends_step, training))
        if resumed is not None:
            training.tell_whose_buffers(_rank_of(resumed), training.parts.model.state_dict())
            training.parts.updated.tell_what_is_anew(self._worker.session.world_size)
        self._find_place(state)
        if state.global_step == (point.step if point is not None else 0):
            training.begin_here()  # what it begins from is its first place to go on from
        training.in_loop = True
        self._works_at(WorkPhase.UNKNOWN)

    def on_epoch_begin(self, _args: Any, state: Any, _control: Any, **_others: Any) -> None:
        """The last moment before an order is drawn: what the end of the epoch changed is known by now."""
        if self._training is None:
            return
        if state.global_step:
            self._training.goes_on()
        self._find_place(state)
        self._begin_order(self._training)

    def on_step_begin(self, _args: Any, _state: Any, _control: Any, **_others: Any) -> None:
        """An update begins: its first batch is worked at."""
        if self._training is None:
            return
        self._evaluates = False
        if self._last is not None:
            self._last.lets_go()
        if self._batches:
            self._training.goes_on()
        self._takes_a_batch()
        self._works_at(WorkPhase.COMPUTING)

    def on_substep_end(self, _args: Any, _state: Any, _control: Any, **_others: Any) -> None:
        """The next batch of the same update."""
        if self._training is not None:
            self._takes_a_batch()

    def _ends_step(self, training: Training, state: Any, control: Any) -> None:
        """The update is complete: its state is what a request is answered with."""
        training.step(state.global_step, self._epoch)
        if self._alike is not None and self._last is not None:
            self._last.stepped()
            self._alike.stepped(state.global_step)
            self._evaluation_follows(control)
        if control.should_evaluate:
            self._works_at(WorkPhase.EVALUATING)
        elif control.should_save:
            self._works_at(WorkPhase.SAVING)

    def on_prediction_step(self, _args: Any, _state: Any, _control: Any, **_others: Any) -> None:
        """Data of an evaluation are open, and a batch of them is done."""
        self._evaluation_runs()
        self._works_at(WorkPhase.EVALUATING)

    def on_evaluate(self, _args: Any, _state: Any, control: Any, **_others: Any) -> None:
        """An evaluation is over; a plateau schedule and the best metric follow, and saving."""
        self._evaluates = False
        self._works_at(WorkPhase.SAVING if control.should_save else WorkPhase.UNKNOWN)

    def on_save(self, _args: Any, _state: Any, _control: Any, **_others: Any) -> None:
        """A checkpoint of Trainer's own is written."""
        self._works_at(WorkPhase.UNKNOWN)

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_others: Any) -> None:
        """What comes between epochs takes its time."""
        self._evaluation_follows(control)
        self._works_at(WorkPhase.SAVING if control.should_save else WorkPhase.UNKNOWN)

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_others: Any) -> None:
        """Training is over, but the script may evaluate and save: only it can say that all is done."""
        if self._training is not None and self._worker is not None:
            if not self._training.is_touched:  # by the best model
                self._training.goes_on()  # with what the last evaluation has changed
            self._training.in_loop = False
            self._worker.stages.ends()
        self._works_at(WorkPhase.UNKNOWN)

    def _evaluation_follows(self, control: Any) -> None:
        """Keep the last step, if the evaluation to come changes it for a while, or might and it is small."""
        if self._last is not None and self._swaps is not False and control.should_evaluate:
            self._last.keeps(_SMALL_BYTES if self._swaps is None else None)

    def _before_forward(self, model: Any, *_: object) -> None:
        if not model.training:
            self._evaluation_runs()

    def _evaluation_runs(self) -> None:
        """Opening its data has drawn a random number; nothing after that does."""
        training, last = self._training, self._last
        if training is None or last is None or not training.in_loop or self._evaluates:
            return
        if not training.history or training.history[-1].position != training.position:
            return  # a model that is only asked in the midst of a step
        self._evaluates = True
        if training.is_touched:
            if self._swaps is None:
                what = "a copy of the last step is kept" if last.is_kept else "nothing is saved this time"
                told(f"parameters are others while an evaluation runs, and {what}; the next has a copy")
            self._swaps = True
            last.draws()
        else:
            self._swaps = self._swaps or False
            training.goes_on()

    def _gasps(self) -> Path:
        return Path(self._output_dir, _FOLDER) if self._directory is None else Path(self._directory)

    def _place(self) -> TrainingFolders:
        return saving_in([self._output_dir], self._gasps())

    def _caller(self) -> FrameType:
        """Trainer's method that calls: a callback is told of everything but its Trainer."""
        frame = inspect.currentframe()
        while frame is not None:
            found = frame.f_locals.get("self")
            if isinstance(found, Trainer) and self in found.callback_handler.callbacks:
                return frame
            frame = frame.f_back
        raise FaultrunError(
            "sdk.transformers.DyingGasp cannot find what it is to save",
            because="its events were not called by a transformers.Trainer",
            hint="Trainer(..., callbacks=[DyingGasp()]), or sdk.torch.protect for a loop of your own",
        )

    def _find_place(self, state: Any) -> None:
        """So many batches of the epoch are done: of one that was begun before, as many as Trainer skips."""
        epoch = float(state.epoch or 0.0)
        self._epoch = int(epoch)
        trainer = self._trainer
        try:
            in_epoch = len(trainer.callback_handler.train_dataloader)
        except TypeError:  # a stream: Trainer counts the updates that were asked for as one epoch
            in_epoch = trainer.args.max_steps * trainer.args.gradient_accumulation_steps
        self._batches = round((epoch - self._epoch) * in_epoch)
        if self._training is not None and not self._training.history:
            self._training.position = Position(state.global_step, self._epoch, self._batches)

    def _begin_order(self, training: Training) -> None:
        """An order may follow from the random numbers of now; of an epoch that goes on, from those of then.

        Trainer puts back those of the place where it goes on as the first batch has come.
        """
        recorder, place = training.recorder, training.reading
        began = recorder.at_epoch(self._epoch) if self._batches else None
        if began is not None:
            restore_rng(began)
        elif self._batches and training.writer.session.point is not None:
            told(
                "what random numbers this epoch began with is not known: an order drawn from them is another"
            )
        step = training.position.step
        place.epoch_rng = recorder.read(recorder.epoch(Position(step, self._epoch, 0), None))

    def _takes_a_batch(self) -> None:
        if self._training is not None:
            self._batches += 1
            step = self._training.position.step
            self._training.position = Position(step, self._epoch, self._batches)

    def _works_at(self, phase: WorkPhase) -> None:
        if self._worker is not None and self._training is not None:
            self._worker.works_at(phase)


def _resumed_from(frame: FrameType | None) -> str | None:
    """What ``Trainer.train`` goes on from, which its inner loop is given as an argument (5.23)."""
    while frame is not None:
        found = frame.f_locals.get("resume_from_checkpoint")
        if isinstance(found, str | os.PathLike) and isinstance(frame.f_locals.get("self"), Trainer):
            return os.fspath(found)
        frame = frame.f_back
    return None


def _rank_of(folder: str) -> int:
    """The rank that has written it: Trainer's own are rank 0's."""
    of_rank = _OF_RANK.fullmatch(Path(folder).absolute().parent.name)
    return 0 if of_rank is None else int(of_rank[1])


def _parts(trainer: Any) -> Parts:
    model = unwrapped(trainer.model)
    scaler = getattr(trainer.accelerator, "scaler", None)
    objects = {"scheduler": trainer.lr_scheduler, "trainer": TrainerProgress(trainer)}
    return Parts(
        model=model,
        optimizers=(unwrapped_optimizer(trainer.optimizer),),
        objects=Objects(
            {**objects, **({} if scaler is None else {"scaler": scaler}), **own_states((trainer.optimizer,))}
        ),
        wrapped=(trainer.model_wrapped,),
        device=device_of(model),
        watched=() if is_compiled(trainer.model_wrapped) else (model,),
    )
