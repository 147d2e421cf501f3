"""A guard as ``protect`` makes it under faultrun, in the process of the test."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from faultrun.sdk.session import Session
from faultrun.sdk.torch import protect
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.worker.worker import Worker


def protected(
    directory: Path, *optimizers: Any, net: nn.Module | None = None, by: Worker | None = None, **more: Any
) -> Guard:
    """``by``: who speaks to the supervisor, where what one guard did matters to the next."""
    owner = by or _owner()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("faultrun.sdk.torch.worker", lambda: owner)
        return protect(net or nn.Linear(2, 2), *optimizers, directory=directory, **more)


@cache
def _lasting() -> Worker:
    return Worker(Session())


def _owner() -> Worker:
    """As if nothing was protected yet. One for all tests: a thread and a pipe stay as long as the process."""
    owner = _lasting()
    owner._helper.provider, owner.providers = None, 0
    return owner
