"""Check mode: a step that is tried again begins with what it began with at first, digest by digest.

What a step may change is looked up where it lives, not in what was saved of it. Its digests are appended to a
file beside the rank's random numbers, which outlives the process. Off, as it is by default, nothing is done.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.group.fsdp2 import gradients_in
from faultrun.sdk.torch.state.rng import Rng, current_rng, memory_at
from faultrun.sdk.torch.state.shards import local_of
from faultrun.sdk.torch.state.state_dict import Parts
from faultrun.sdk.worker.save_files import Position, SaveWriter
from faultrun.sdk.worker.training_stages import told

_MOST_LINES = 1024
_PLAIN = (bool, int, float, str, type(None))
_RANDOM = "random numbers of "
BOUNDARY, BEGINNING = "boundary", "beginning"
"""Where digests are taken: as a step has ended, and as the next begins."""

Digests = dict[str, str]


class StateCheck:
    """Compares tries of a step of one rank; states among another ``world`` of ranks differ. Main thread."""

    def __init__(self, path: Path, run_id: str, world: int) -> None:
        self._path, self._of = path, [run_id, world]
        self._before: dict[str, Digests] = {}
        """Digests of earlier tries, while their steps come again."""
        self._taken_back: set[str] = set()
        """What is compared first, before anything is computed again."""
        self._lines = 0
        self._named: set[str] = set()
        self._excused = {"number": "numbers among a module's attributes are not kept"}
        """Beginnings of names that may differ, and why."""

    def excuse(self, names: str, why: str) -> None:
        """What begins so may differ; with no ``why`` not any more."""
        self._excused.pop(names, None)
        self._excused.update({names: why} if why else {})

    def comes_back(self) -> None:
        """What follows has been tried before, unless no try came so far."""
        self._before, self._taken_back = self._read(), {BOUNDARY, BEGINNING}

    def compare(self, when: str, position: Position, now: Digests, left_out: tuple[str, ...]) -> None:
        """With the try before, if there was one, but what is ``left_out``. FaultrunError: it differs."""
        if (then := self._before.pop(_place(when, position), None)) is None:
            return
        excused = self._excused if when in self._taken_back else {"": "it was computed again"}
        self._taken_back.discard(when)
        wrong = []
        for name in {**then, **now}:
            is_new = name not in then or name not in now
            if then.get(name) == now.get(name) or name.startswith(left_out) or (is_new and _RANDOM in name):
                continue
            why = next((why for start, why in excused.items() if name.startswith(start)), "")
            if name.startswith("gradient") and name not in now:
                why = "a step that comes again begins without those that the step before left"
            if why:
                self._tell(name, why)
            else:
                wrong.append(name)
        if wrong:
            more = f", and {len(wrong) - 1} more such as {wrong[-1]}" if wrong[1:] else ""
            raise FaultrunError(
                f"step {position.step + 1} would come again from another state than at first",
                because=f"{wrong[0]} differs{more}",
                hint="make it a parameter or a buffer, or give it to protect(objects=...); if it is one, it"
                " is a mistake of the SDK: report it",
            )

    def write(self, when: str, position: Position, now: Digests) -> None:
        """For who comes here again, in this process or the next."""
        self._lines += 1
        with contextlib.suppress(OSError):
            if self._lines > _MOST_LINES:
                kept = self._path.read_text(encoding="utf-8").splitlines(keepends=True)[-_MOST_LINES // 2 :]
                self._path.write_text("".join(kept), encoding="utf-8")
                self._lines = len(kept)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([self._of, _place(when, position), now]) + "\n")

    def _tell(self, name: str, why: str) -> None:
        if (kind := name.partition(" ")[0]) not in self._named:
            self._named.add(kind)
            told(f"{name} cannot be compared: {why}")

    def _read(self) -> dict[str, Digests]:
        found: dict[str, Digests] = {}
        with contextlib.suppress(OSError):
            for line in self._path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):  # cut off by a kill
                    of, place, digests = json.loads(line)
                    found.update({place: digests} if of == self._of else {})
        return found


def check_of(writer: SaveWriter) -> StateCheck | None:
    """Make the check of the rank that ``writer`` saves for; None where none was asked for."""
    session = writer.session
    path = writer.own_folder / "state-digests"
    return StateCheck(path, session.run_id, session.world_size) if session.checks else None


def living(parts: Parts, loader: Any, batch: Any = None) -> Digests:
    """Whatever belongs to this moment of a training, by name. ``batch``: of the step that begins with it."""
    found: dict[str, Any] = {}
    for name, parameter in parts.model.named_parameters():
        found[f"parameter {name}"] = parameter
        found[f"frozen {name}"] = not parameter.requires_grad
    grads = [(name, one.grad) for name, one in parts.model.named_parameters() if one.grad is not None]
    grads += gradients_in(parts.model)
    # A rank that takes a step back drops its gradients, or empties those that may outlive steps.
    found.update({f"gradient {name}": one for name, one in grads if local_of(one).any()})
    found.update({f"buffer {name}": one for name, one in parts.model.named_buffers()})
    for path, module in parts.model.named_modules():
        for name, one in vars(module).items():
            if isinstance(one, torch.Tensor | int | float | str) and name != "training":
                found[f"{'tensor' if isinstance(one, torch.Tensor) else 'number'} {path}.{name}"] = one
    states = {str(number): one.state_dict() for number, one in enumerate(parts.optimizers)}
    rng = current_rng(loader)
    values = [getattr(rng, name) for name in Rng.__slots__ if name != "noted"]
    random = zip(("torch", "Python", "numpy", "CUDA", "loader"), values, strict=True)
    found.update({f"{_RANDOM}{name}": one for name, one in random if one is not None})
    for kind, state in {"optimizer": states, "object": parts.objects.states(), "batch": batch}.items():
        found.update(_leaves(f"{kind} ", state))
    return {name: _digest(one) for name, one in found.items()}


def _place(when: str, position: Position) -> str:
    return f"{when} {position}"


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _leaves(f"{name}{key}.", one)
    elif isinstance(value, list | tuple) and not all(isinstance(one, _PLAIN) for one in value):
        yield from _leaves(name, dict(enumerate(value)))
    elif value is not None:
        yield name.rstrip(". "), value


def _digest(value: Any) -> str:
    digest = hashlib.blake2b(digest_size=8)
    if isinstance(value, torch.Tensor):
        local = local_of(value.detach())
        if local.layout == torch.strided and not local.is_meta:
            local = local.to("cpu").contiguous()
            digest.update(memory_at(local.data_ptr(), local.nbytes) if local.nbytes else b"")
        value = (str(local.dtype), tuple(local.shape))
    elif hasattr(value, "tobytes"):
        digest.update(value.tobytes())
        value = str(value.dtype)
    elif isinstance(value, tuple):
        value = [_digest(one) for one in value] if any(hasattr(one, "tobytes") for one in value) else value
    words = repr(value) if isinstance(value, (*_PLAIN, list, tuple)) else type(value).__name__
    digest.update(words.encode())
    return digest.hexdigest()
