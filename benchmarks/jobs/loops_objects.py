"""What a script of the zoo of loops keeps besides its parameters."""

import os
from typing import Any

import torch
from torch import nn


class Kept:
    """What a script gives as an object: its attributes, which are replaced and changed in place."""

    def __init__(self, **kept: Any) -> None:
        self.kept = kept

    def state_dict(self) -> dict[str, Any]:
        """As it is now."""
        return self.kept

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As it was."""
        self.kept = state


class Noise:
    """Each rank's own."""

    def __init__(self) -> None:
        self.rng = torch.Generator().manual_seed(50 + int(os.environ["RANK"]))

    def state_dict(self) -> dict[str, Any]:
        """As it is now."""
        return {"rng": self.rng.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As it was."""
        self.rng.set_state(state["rng"])


class Counting(nn.Module):  # type: ignore[misc]
    """What it keeps is no tensor."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Another each time."""
        self.calls += self.training
        return x * (1 + 0.1 * (self.calls % 7))

    def get_extra_state(self) -> dict[str, Any]:
        """As it is now."""
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """As it was."""
        self.calls = state["calls"]
