"""Why a rank cannot train on while the place of another is empty: seen in its steps, before any has died.

The missing ranks' samples become further parts of every step. Whatever is more than a sum over samples, or
needs a rank that is not there, would be another training.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.data.dataloader import _BaseDataLoaderIter

from faultrun.sdk.torch.group.ddp import Averaging
from faultrun.sdk.torch.group.empty_places import keep_compiler_out
from faultrun.sdk.torch.group.process_group import TrainingGroup
from faultrun.sdk.torch.loader.batch_shares import why_no_shares
from faultrun.sdk.torch.state.buffers import same_values
from faultrun.sdk.torch.stay.compared_ranks import ComparedRanks
from faultrun.sdk.torch.training import Training

_NO_BATCHES = "its steps are not those of guard.batches"


class TrainOn:
    """What keeps one rank from doing a share of a missing one's samples. Main thread.

    ``of_a_part``: its state is not what all ranks hold.
    """

    def __init__(self, training: Training, group: TrainingGroup | None, *, of_a_part: bool) -> None:
        self._training, self._of_a_part = training, of_a_part
        self._group, self._wanted = group, training.writer.session.trains_on
        self._loader, self._reads = _NO_BATCHES, ""
        self._norms: list[tuple[str, Any]] | None = None
        self._steps = 0
        self._looks = True
        """Whether this step is one in which buffers are looked at."""
        self._buffers: dict[str, Any] | None = None
        """The model's as they were first seen."""
        self._of_objects: dict[str, Any] = {}
        """Those of modules among the objects as the step began: an average of the model changes behind it."""
        self._changing = ""
        self._compared = ComparedRanks(training.writer.session, training.parts.objects)
        self._trains_so = False
        """Whether the model was updated while it does not train, as where batch norm is frozen."""

    def begin(self, averaging: Averaging, tell: Callable[[], object]) -> None:
        """Training begins: ranks meet in the script's steps from here on; ``tell`` tells of ``fields``."""
        if (group := self._group) is not None and (meetings := group.meetings) is not None:
            meetings.begin()
            keep_compiler_out()
            meetings.tell, meetings.against_sum = tell, self._against_sum
            averaging.places, averaging.meets = lambda: group.places, meetings.averages
            in_parts = self._training.in_parts
            averaging.averages = in_parts.averages
            in_parts.watch(self._training.parts.optimizers, self._cannot, keeps_world=True)
            self._training.missing.cannot = self._cannot
            _see_reads(self._is_read)

    def _cannot(self, why: str) -> None:
        """Note it. NeedsAllRanks while a place is empty."""
        meetings = None if self._group is None else self._group.meetings
        assert meetings is not None, "nothing is watched without a group of members"
        if self._training.missing.places.missing:
            meetings.refuse(why)
        meetings.why = meetings.why or why

    def _is_read(self) -> None:
        model = self._training.parts.model
        is_trained = model.training or (self._trains_so and torch.is_grad_enabled())
        if self._training.in_parts.is_given and is_trained:
            self._reads = "its steps read a DataLoader that is not that of guard.batches"

    def _against_sum(self) -> str:
        """The script sums up. Why that cannot be gradients of the step, of which those that live have all."""
        if not self._training.parts.model.training:
            return "as the model evaluates"
        if self._training.in_parts.accumulating:
            return "in a part of a step that is not its last"
        if not self._training.in_parts.has_gradients:
            return "before a backward pass or behind an update"
        self._training.in_parts.sums()
        return ""

    def meets(self) -> AbstractContextManager[None]:
        """What ranks say in it to each other is the SDK's own."""
        meetings = None if self._group is None else self._group.meetings
        return nullcontext() if meetings is None else meetings.ours()

    def attempts(self, *, begins: bool) -> None:
        """The script begins a step that can be taken back, or ends it."""
        if self._group is not None and self._group.meetings is not None:
            self._group.meetings.in_attempt = begins
            if begins and (self._looks or self._training.missing.places.missing):
                self._of_objects = {name: one.clone() for name, one in self._now_in_objects().items()}

    def reads(self, loader: Any) -> None:
        """The steps to come are those of ``loader``."""
        if self._wanted:
            self._loader = why_no_shares(loader) or self._why_others(loader.sampler)

    def _why_others(self, sampler: Any) -> str:
        """Why this rank's sampler does not show what the others read; "" where it follows."""
        session = self._training.writer.session
        if (sampler.rank, sampler.num_replicas) == (session.rank, session.world_size):
            return ""
        return f"its sampler is that of rank {sampler.rank} of {sampler.num_replicas}"

    def stepped(self) -> None:
        """A step is complete: look whether it has changed buffers, after the first, second, fourth."""
        if not self._wanted or self._changing:
            return
        self._steps += 1
        self._looks = not self._steps & (self._steps - 1)
        if self._looks:
            self._compared.look(self._training.position.step)
            self._look_at_buffers(is_empty=False)

    def check(self) -> None:
        """Look before each update while a place is empty: it may be the first step that needs all ranks.

        NeedsAllRanks: it is.
        """
        meetings = None if self._group is None else self._group.meetings
        if meetings is None:
            return
        self._trains_so |= not self._training.parts.model.training
        if self._of_objects:
            before, self._of_objects = self._of_objects, {}
            self._note_changed(before, self._now_in_objects())
        if self._training.missing.places.missing:
            self._look_at_buffers(is_empty=True)
            meets = "its ranks meet between two updates" if self._training.under_way.waits else ""
            if why := self._why_not or meets:
                meetings.refuse(why)

    @property
    def waits(self) -> bool:
        """Whether this rank knows, while a place is empty, that it has to wait for who takes it."""
        return bool(self._training.missing.places.missing and self._why_not)

    def _look_at_buffers(self, *, is_empty: bool) -> None:
        """Compare the model's with what they were; one that comes while a place is empty is a change, too."""
        now, before = self._training.parts.buffers.now(), self._buffers or {}
        if self._buffers is None or not is_empty:
            before |= {name: one.clone() for name, one in now.items() if name not in before}
            self._buffers = before
        self._note_changed(before, now)

    def _note_changed(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        both = before.keys() & now.keys()
        changed = [
            one for one in [*before, *now] if one not in both or not same_values(before[one], now[one])
        ]
        self._changing = self._changing or ", ".join(dict.fromkeys(changed[:3]))

    def _now_in_objects(self) -> dict[str, Any]:
        modules = self._training.parts.objects.modules
        return {f"{name}.{key}": one for name, module in modules for key, one in module.named_buffers()}

    def fields(self) -> dict[str, str]:
        """What the word that this rank can rejoin says of it: nothing where it was not asked."""
        return {"trains_on": self._why_not} if self._wanted else {}

    @property
    def _why_not(self) -> str:
        training, group = self._training, self._group
        if group is None or (meetings := group.meetings) is None:
            return "this version of torch makes no process group that has empty places"
        if self._of_a_part:
            return "it has a part of the state that not all ranks have"
        if training.redo.in_function:
            return "its steps are in a function for guard.run"
        if "gloo" not in group.backend and "nccl" not in group.backend:
            return f"a group of {group.backend} has no empty places"
        if os.environ.get("TORCH_DIST_INIT_BARRIER") == "1":
            return "TORCH_DIST_INIT_BARRIER has all ranks wait for one another"
        return meetings.why or self._of_model or ("" if self._steps == 0 else self._of_steps)

    @property
    def _of_model(self) -> str:
        if self._norms is None:
            models = [self._training.parts.model, *([] if self._group is None else self._group.ddps)]
            modules = [pair for model in models for pair in model.named_modules()]
            self._norms = [(name, one) for name, one in modules if isinstance(one, _NormBase)]
            for at, model in self._training.parts.objects.modules:  # others show by their buffers
                inside = model.named_modules(prefix=at)
                norms = [pair for pair in inside if isinstance(pair[1], _NormBase)]
                self._norms += [(name, one) for name, one in norms if not one.track_running_stats]
        for name, one in self._norms:
            if one.training and (one.track_running_stats or "Batch" in type(one).__name__):
                return f"{name} ({type(one).__name__}) trains, and is no sum over samples"
        return f"steps change buffers ({self._changing})" if self._changing else ""

    @property
    def _of_steps(self) -> str:
        training = self._training
        if why := self._loader or self._reads:
            return why
        if training.reading.generator is not None:
            return "its loader draws from generators, or keeps counts, of its own"
        if training.under_way.keeps_copies:
            return "its ranks meet between two updates of a step"
        if alike := self._compared.alike:
            return f"all ranks draw the same numbers from {' and '.join(sorted(alike))}"
        if unlike := self._compared.unlike:
            return f"objects ({', '.join(sorted(unlike))}) differ from rank to rank"
        if training.in_parts.asked != {"weight", "accumulating"}:
            return "its steps do not ask for guard.weight and guard.accumulating"
        return ""


def _see_reads(call: Callable[[], object]) -> None:
    """Call whenever a batch is taken from a ``DataLoader`` in this process."""
    plain = _BaseDataLoaderIter.__next__

    def taken(one: Any) -> Any:
        call()
        return plain(one)

    _BaseDataLoaderIter.__next__ = taken
