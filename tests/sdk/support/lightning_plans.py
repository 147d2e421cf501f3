"""What Lightning is to train, told without importing it."""

from dataclasses import dataclass, field
from typing import Any

BATCHES = 6
"""Of an epoch."""


@dataclass(kw_only=True)
class Job:
    """What is trained, and how long; ``lightning_job`` has what the names mean."""

    net: str = "net"
    loader: str = "shuffled"
    options: dict[str, Any] = field(default_factory=lambda: {"max_epochs": 3})
