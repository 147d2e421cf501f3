"""How a rank's state becomes the common one, and of which life that says to be."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from faultrun.sdk.session import Session
from faultrun.sdk.stay.common_step import CommonStep, From
from faultrun.sdk.torch.group.ddp import Averaging
from faultrun.sdk.torch.stay import live_state
from faultrun.sdk.torch.stay.live_state import LiveState

pytestmark = pytest.mark.torch


def test_who_gets_a_state_from_a_peer_says_of_it_what_the_peer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the files of a newcomer and of a survivor on two nodes would not be of one state."""
    survivor = Session(rank=0, world_size=2, incarnation=3, trained_in=1)
    newcomer = replace(survivor, rank=1, is_newcomer=True, trained_in=None)
    common = CommonStep(step=7, sources=(From.ITSELF, From.PEER), giver=0)
    sent: list[Any] = []
    monkeypatch.setattr(live_state, "send", lambda state, *_: sent.append(state))
    monkeypatch.setattr(live_state, "receive", lambda *_: sent.pop())
    for session in (survivor, newcomer):
        does = SimpleNamespace(begin=lambda: None, put_own=lambda _: True, went_back=lambda _: None)
        training: Any = SimpleNamespace(
            writer=SimpleNamespace(session=session),
            history=[None],
            state_at=lambda _: "state",
            lock=does,
            put_back=lambda: None,
            load=lambda _: None,
            came_back=lambda: None,
            in_loop=False,
        )
        memory: Any = does
        LiveState(training, lambda: None).become(common, memory, Averaging(lambda: None), "cpu")
    assert (survivor.life, newcomer.life) == (1, 1)
