"""Memory of this rank's device holds what nothing wrote there: the script or the device has found it."""

from enum import Enum
from typing import Any


class MemoryFaultKind(Enum):
    """What the bad memory is used for, as ``torch_npu.npu.check_uce_in_memory`` answers."""

    NONE = 0
    OUTSIDE = 1  # not torch's: nothing that this process does makes it good again
    TEMPORARY = 2  # of tensors that a step makes and drops: the step is done again
    PERSISTENT = 3  # of tensors that outlive the step: they come from elsewhere


class MemoryFault(Exception):
    """Raise it inside of an attempt for memory that is known to be bad.

    ``bad`` are tensors, or names of parameters; none: any of this rank's may be. Where the script's
    survivors stay, the process goes on: parameters, buffers and optimizer of this rank come from a replica,
    or from its memory snapshot, if any of them is bad, and the step is done again. Else, and with
    ``MemoryFaultKind.OUTSIDE``, it ends this process as any exception, and another one takes its place.
    """

    def __init__(
        self, bad: Any = (), *, kind: MemoryFaultKind = MemoryFaultKind.PERSISTENT, why: str = ""
    ) -> None:
        several = isinstance(bad, list | tuple | set | frozenset)
        self.bad: tuple[Any, ...] = tuple(bad) if several else (bad,)
        self.kind, self.why = kind, why
        names = " ".join(one for one in self.bad if isinstance(one, str))
        super().__init__(": ".join(filter(None, (f"{kind.name.lower()} memory fault", names, why))))
