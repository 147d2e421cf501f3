"""Writes the files of Trainer's ``checkpoint-N`` without Trainer's collectives, and for all ranks.

Source: ``Trainer._save_checkpoint``, ``_save``, ``_save_rng_state`` and what loads them; transformers 5.23.
Trainer reads back the files that it knows. ``faultrun_state.pt`` beside them holds what else a step changes.
"""

import copy
import json
import random
import zlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.trainer import _is_peft_model
from transformers.trainer_callback import ExportableState

from faultrun.sdk.torch.group.same_parameters import sample_of
from faultrun.sdk.torch.rest_of_state import put_rest
from faultrun.sdk.torch.state.boundary import with_numbers
from faultrun.sdk.torch.state.buffers import Buffers
from faultrun.sdk.torch.state.rng import Rng
from faultrun.sdk.torch.state.state_dict import Parts

OPTIMIZER = "optimizer.pt"
SCHEDULER = "scheduler.pt"
REST = "faultrun_state.pt"
_MODEL = "pytorch_model.bin"
_GROWING = frozenset({"log_history", "stateful_callbacks"})


class TrainerProgress:
    """``TrainerState`` without its list of logs, which only grows: how long it is says enough.

    Operations since the last log are counted in: Trainer adds them up in a collective when it logs.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._names = [field.name for field in fields(trainer.state) if field.name not in _GROWING]

    def state_dict(self) -> dict[str, Any]:
        """All that ``trainer_state.json`` needs, of this moment."""
        trainer, state = self._trainer, self._trainer.state
        told = {name: getattr(state, name) for name in self._names}
        told["total_flos"] += trainer.current_flos * trainer.args.world_size
        callbacks: dict[str, Any] = {}
        for one in (*trainer.callback_handler.callbacks, trainer.control):
            if isinstance(one, ExportableState):
                name = type(one).__name__
                known = callbacks.get(name)
                alike = known if isinstance(known, list) else [] if known is None else [known]
                callbacks[name] = [*alike, one.state()] if alike else one.state()
        return {"fields": told, "logs": len(state.log_history), "callbacks": callbacks}

    def load_state_dict(self, _state: Mapping[str, Any]) -> None:
        """Trainer reads its own file."""


def callbacks_had_stopped(callbacks: Sequence[Any], saved: Mapping[str, Any]) -> bool:
    """Have callbacks be as they were ``saved``, by class; whether one had stopped the training early.

    Trainer does it only with ``restore_callback_states_from_checkpoint``, and forgets that it had stopped.
    """
    for name, states in saved.items():
        alike = (one for one in callbacks if type(one).__name__ == name)
        for one, state in zip(alike, states if isinstance(states, list) else [states], strict=False):
            vars(one).update(state.get("attributes", {}))
    return any(
        one.early_stopping_patience_counter >= one.early_stopping_patience
        for one in callbacks
        if hasattr(one, "early_stopping_patience_counter")
    )


class ModelFile:
    """What a gasp holds of a model, under the names by which Trainer looks for it.

    ``save_pretrained`` may write others. Parameters below adapters that no step changes are left out: the
    script has them wherever it begins. ``written``: names in the checkpoint that training goes on from.
    """

    def __init__(self, model: Any, buffers: Buffers, written: Container[str]) -> None:
        self._buffers = buffers
        has_adapters = hasattr(model, "peft_config")
        named = model.named_parameters(remove_duplicate=False) if has_adapters else ()
        self._base = {
            name: sample_of(one) for name, one in named if not one.requires_grad and name not in written
        }
        self.is_adapters = has_adapters and _is_peft_model(model)
        """Whether Trainer reads adapters, as their class writes them."""

    def changed(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """A ``model``'s state without what no step changes."""
        base = self._base
        return {name: one for name, one in model.items() if name not in base or base[name] != sample_of(one)}

    def write(self, folder: Path, model: Mapping[str, Any], odd: Container[str]) -> None:
        """Write it for Trainer, which refuses ``odd`` shapes: for these there is one that it takes."""
        kept = {name: one if name not in odd else self._buffers.at_first(name) for name, one in model.items()}
        torch.save({name: one for name, one in kept.items() if one is not None}, folder / _MODEL)


def write_export(folder: Path, trainer: Any, state: Mapping[str, Any]) -> None:
    """What ``from_pretrained`` wants beside a model's ``state``, or adapters; whatever their class raises."""
    model = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    if hasattr(model, "peft_config"):
        model = copy.copy(model)  # which shares all tensors
        model.should_save_on_this_rank = lambda _is_main_process: True  # any rank may be the one that is left
        model.save_pretrained(folder, state_dict=dict(state), is_main_process=True)
    elif hasattr(model, "save_pretrained"):
        model.config.save_pretrained(folder)
        if model.can_generate():
            model.generation_config.save_pretrained(folder)


def write_checkpoint(
    folder: Path, trainer: Any, state: Mapping[str, Any], numbers: Sequence[dict[str, Any]]
) -> None:
    """All else; ``numbers`` are the random numbers of each rank. ``trainer_state.json`` comes last."""
    if trainer.processing_class is not None:
        trainer.processing_class.save_pretrained(folder)
    torch.save(trainer.args, folder / "training_args.bin")
    torch.save(state["optimizer"], folder / OPTIMIZER)
    torch.save(state["objects"]["scheduler"], folder / SCHEDULER)
    if "scaler" in state["objects"]:
        torch.save(with_numbers(state["objects"]["scaler"]), folder / "scaler.pt")
    for rank, one in enumerate(numbers):
        torch.save(one, folder / (f"rng_state_{rank}.pth" if len(numbers) > 1 else "rng_state.pth"))
    progress = state["objects"]["trainer"]
    told = {
        **progress["fields"],
        "log_history": trainer.state.log_history[: progress["logs"]],
        "stateful_callbacks": progress["callbacks"],
    }
    text = json.dumps(told, indent=2, sort_keys=True)
    (folder / "trainer_state.json").write_text(f"{text}\n", encoding="utf-8")


def put_back(folder: Path, parts: Parts) -> Container[str]:
    """Put back what is in ``folder`` once Trainer has read what it knows; the names in our own model file.

    Of a checkpoint that Trainer wrote without the callback there is nothing to put back.
    """
    if not (folder / REST).is_file():
        return ()
    rest, optimizer = _read(folder / REST), _read(folder / OPTIMIZER)
    model = _read(folder / _MODEL) if (folder / _MODEL).is_file() else {}
    put_rest(parts, rest, model, optimizer)
    return {*model, *rest["model"]}


def _read(path: Path) -> Any:
    """What lies there, of which only what is looked at is read."""
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)


def finished_in(output_dir: Path) -> Path | None:
    """The newest ``checkpoint-N`` of Trainer's own after its last step; None where it did not come so far.

    Trainer saves after the last step unless ``save_strategy="no"``, and ``trainer_state.json`` last.
    """
    finished = {}
    for path in output_dir.glob("checkpoint-*/trainer_state.json"):
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            step, last = int(told["global_step"]), int(told["max_steps"])
        except (OSError, ValueError, KeyError, TypeError):  # torn: it did not come to its end
            continue
        if path.parent.name == f"checkpoint-{step}" and 0 < last <= step:
            finished[step] = path.parent
    return finished[max(finished)] if finished else None


def numbers_of(rng: Rng) -> dict[str, Any]:
    """The content of an ``rng_state`` file. CUDA's are a list by device, of which a rank reads its own."""
    numpy = rng.numpy
    told = {
        "python": rng.python,
        "numpy": np.random.get_state() if numpy is None else (numpy[0], np.array(numpy[1]), *numpy[2:]),
        "cpu": rng.cpu,
    }
    if rng.cuda is not None:
        count = torch.cuda.device_count()
        told["cuda"] = [rng.cuda] * count if torch.distributed.is_initialized() else rng.cuda
    return told


def new_numbers(own: Rng, rank: int) -> dict[str, Any]:
    """Random numbers for a rank whose notes are not to be had; they follow from ours, the same every time."""
    seed = zlib.crc32(own.cpu.numpy().tobytes(), rank + 1)
    cpu, cuda = torch.Generator(), own.cuda
    if cuda is not None:
        cuda = torch.Generator("cuda").manual_seed(seed).get_state()
    return numbers_of(
        Rng(
            cpu=cpu.manual_seed(seed).get_state(),
            python=random.Random(seed).getstate(),
            numpy=tuple(np.random.RandomState(seed).get_state()),
            cuda=cuda,
            loader=None,
        )
    )
