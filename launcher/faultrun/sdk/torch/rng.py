"""The random numbers of one rank as a value: torch, Python, numpy if it was imported, CUDA if it is used.

What is saved consists of tensors, tuples and numbers only: ``torch.load(weights_only=True)`` reads it.
"""

import random
import sys
import zlib
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Rng:
    """The state of every generator; None where it was not in use. ``loader`` is the data loader's own."""

    cpu: Any
    python: tuple[Any, ...]
    numpy: tuple[Any, ...] | None
    cuda: Any
    loader: Any


def current_rng(loader: Any = None) -> Rng:
    """What the generators hold now, asked in the documented way (``recorder`` is the quick one)."""
    numpy = sys.modules.get("numpy.random")
    return Rng(
        cpu=torch.get_rng_state(),
        python=random.getstate(),
        numpy=tuple(numpy.get_state()) if numpy is not None else None,
        cuda=cuda_rng_if_used(),
        loader=loader.get_state() if loader is not None else None,
    )


def cuda_rng_if_used() -> Any:
    """The state of CUDA's generator; None while nobody has used CUDA."""
    return torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None


def restore_rng(rng: Rng, loader: Any = None) -> None:
    """Go on from there."""
    torch.set_rng_state(rng.cpu)
    random.setstate(rng.python)
    if rng.numpy is not None:
        import numpy as np

        np.random.set_state(rng.numpy)
    if rng.cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(rng.cuda)
    if loader is not None and rng.loader is not None:
        loader.set_state(rng.loader)


def reseeded(rng: Rng, rank: int) -> Rng:
    """New random numbers for ``rank`` that follow from another rank's: the same every time."""
    kept = current_rng()
    seed = zlib.crc32(rng.cpu.numpy().tobytes(), rank + 1)
    torch.manual_seed(seed)
    random.seed(seed)
    if rng.numpy is not None:
        import numpy as np

        np.random.seed(seed)
    new = current_rng()
    restore_rng(kept)
    return new


def rng_to_plain(rng: Rng) -> dict[str, Any]:
    """Nothing but tensors, tuples and numbers."""
    numpy = rng.numpy
    return {
        "cpu": rng.cpu,
        "python": rng.python,
        "numpy": None if numpy is None else (numpy[0], tuple(numpy[1].tolist()), *numpy[2:]),
        "cuda": rng.cuda,
        "loader": rng.loader,
    }


def rng_from_plain(plain: dict[str, Any]) -> Rng:
    """The opposite of ``rng_to_plain``."""
    version, words, gauss = plain["python"]
    numpy = plain["numpy"]
    if numpy is not None:
        import numpy as np

        numpy = (numpy[0], np.array(numpy[1], dtype=np.uint32), *numpy[2:])
    return Rng(
        cpu=plain["cpu"],
        python=(version, tuple(words), gauss),
        numpy=numpy,
        cuda=plain["cuda"],
        loader=plain["loader"],
    )
