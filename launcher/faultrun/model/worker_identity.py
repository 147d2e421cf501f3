"""Who a worker is told to be beside its rank, and where it works."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """torchrun's ``--role`` and ``--virtual-local-rank``.

    ``own_device``: each worker sees its own GPU alone, as number 0.
    """

    role: str = "default"
    own_device: bool = False
