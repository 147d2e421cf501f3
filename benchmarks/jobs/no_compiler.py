"""Keeps torch's compiler out of jobs that compile nothing: half of a worker's start.

torch 2.13 imports ``torch._dynamo`` (1.5 s of processor time) with the first
optimizer, to mark some of its methods as not to be compiled, and again in
``step``. Saying beforehand what the marks come to leaves it out.
"""

from typing import Any

import torch
from torch.optim import SGD, Optimizer


class PlainSGD(SGD):  # type: ignore[misc]  # torch is untyped here
    """SGD that is never compiled: the same numbers, the same hooks, no compiler."""

    def __init__(self, params: Any, **options: Any) -> None:
        _mark()
        super().__init__(params, **options)

    def step(self) -> None:
        """One update."""
        plain = getattr(SGD.step, "__wrapped__", SGD.step)
        with torch.no_grad():
            plain(self)


def _mark() -> None:
    """Does nothing to a torch that marks its methods in another way."""
    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
        plain = getattr(getattr(Optimizer, name), "__wrapped__", None)
        if plain is not None:
            vars(plain).setdefault("__dynamo_disable", plain)
