"""What one attempt after the other says of its step."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from faultrun.sdk.files import Position
from faultrun.sdk.torch.attempts import StepAttempt

pytestmark = pytest.mark.torch


def test_one_that_is_kept_for_all_steps_tells_of_the_last() -> None:
    def counts() -> None:
        guard.position = Position(guard.position.step + 1)

    rejoin = SimpleNamespace(found_broken=lambda: None, undoes=lambda error: True, settle=lambda: None)
    redo = SimpleNamespace(attempted=False, in_function=False)
    guard: Any = SimpleNamespace(
        position=Position(), rejoin=rejoin, redo=redo, accumulating=False, step=counts
    )
    attempt = StepAttempt(guard)
    told = []
    for is_lost in (False, True, False):
        with attempt:
            if is_lost:
                raise RuntimeError("a peer is gone")
        told.append((guard.position.step, attempt.done))
    assert told == [(1, True), (1, False), (2, True)]
